package main

import (
	"os"
	"path/filepath"
	"testing"

	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// machine is a client's side: its keys and its name.
type machine struct {
	machineKey key.MachinePublic
	nodeKey    key.NodePublic
	name       string
}

func newMachine(name string) machine {
	return machine{key.NewMachine().Public(), key.NewNode().Public(), name}
}

// join has m join and returns its address and full name.
func (m machine) join(t *testing.T, net *tailnet) (address, name string) {
	t.Helper()
	net.join(m.machineKey, &tailcfg.RegisterRequest{NodeKey: m.nodeKey, Hostinfo: &tailcfg.Hostinfo{Hostname: m.name}})
	self, _, _ := net.view(m.nodeKey)
	if self == nil {
		t.Fatalf("%s is no member after joining", m.name)
	}
	return self.Addresses[0].Addr().String(), self.Name
}

func open(t *testing.T, path string) *tailnet {
	t.Helper()
	net, err := openTailnet(path, "lab.ts.net")
	if err != nil {
		t.Fatal(err)
	}
	return net
}

func TestAddressesAreGivenInOrderOfJoining(t *testing.T) {
	net := open(t, filepath.Join(t.TempDir(), "state"))
	for i, want := range []string{"100.64.0.1", "100.64.0.2", "100.64.0.3"} {
		if got, _ := newMachine(string(rune('a'+i))).join(t, net); got != want {
			t.Errorf("machine %d got %s, want %s", i, got, want)
		}
	}
}

func TestARestartedServerKnowsItsNodesAndHasItsKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	before, m := open(t, path), newMachine("a1")
	address, _ := m.join(t, before)
	after := open(t, path)
	if !after.member(m.nodeKey) || !after.state.ServerKey.Equal(before.state.ServerKey) {
		t.Fatal("the restarted server forgot a node or its own key")
	}
	if got, _ := m.join(t, after); got != address {
		t.Errorf("address %s after the restart, %s before", got, address)
	}
	if got, _ := newMachine("a2").join(t, after); got == address {
		t.Error("the restarted server gave an address away twice")
	}
}

func TestAMachineKeepsItsAddressWithANewNodeKey(t *testing.T) {
	net, m := open(t, filepath.Join(t.TempDir(), "state")), newMachine("a1")
	address, _ := m.join(t, net)
	old := m.nodeKey
	m.nodeKey = key.NewNode().Public()
	if got, _ := m.join(t, net); got != address {
		t.Errorf("address %s, want %s", got, address)
	}
	if net.member(old) {
		t.Error("the old node key still is a member's")
	}
}

func TestAMachineThatLeftIsGoneAndItsAddressStaysUnused(t *testing.T) {
	net, m := open(t, filepath.Join(t.TempDir(), "state")), newMachine("a1")
	address, _ := m.join(t, net)
	net.leave(m.nodeKey)
	if net.member(m.nodeKey) {
		t.Fatal("still a member")
	}
	if got, _ := newMachine("a2").join(t, net); got == address {
		t.Errorf("%s was given to another machine", address)
	}
}

func TestAMachineMadeAnewTakesThePlaceOfItsOfflineForerunner(t *testing.T) {
	net, old := open(t, filepath.Join(t.TempDir(), "state")), newMachine("a1")
	address, name := old.join(t, net)
	if gotAddress, gotName := newMachine("a1").join(t, net); gotAddress != address || gotName != name {
		t.Errorf("got %s %s, want %s %s", gotAddress, gotName, address, name)
	}
	if net.member(old.nodeKey) {
		t.Error("the forerunner still is a member")
	}
}

func TestTwoOnlineMachinesOfOneNameAreToldApart(t *testing.T) {
	net, first := open(t, filepath.Join(t.TempDir(), "state")), newMachine("a1")
	first.join(t, net)
	net.poll(first.nodeKey, 1)
	if _, name := newMachine("a1").join(t, net); name != "a1-1.lab.ts.net." {
		t.Errorf("the second one is called %s", name)
	}
	if !net.member(first.nodeKey) {
		t.Error("the first one was put out")
	}
}

func TestNewsTellOfPeersThatLeft(t *testing.T) {
	net := open(t, filepath.Join(t.TempDir(), "state"))
	self, peer := newMachine("a1"), newMachine("b1")
	self.join(t, net)
	peer.join(t, net)
	told := map[tailcfg.NodeID]bool{}
	s := &server{tailnet: net, relays: relayMap("control.lab")}
	node, peers, _ := net.view(self.nodeKey)
	if first := s.news(node, peers, told); len(first.Peers) != 1 || len(first.PeersRemoved) != 0 {
		t.Fatalf("first news: %d peers, %d removed", len(first.Peers), len(first.PeersRemoved))
	}
	net.leave(peer.nodeKey)
	node, peers, _ = net.view(self.nodeKey)
	if second := s.news(node, peers, told); len(second.Peers) != 0 || len(second.PeersRemoved) != 1 {
		t.Fatalf("second news: %d peers, %d removed", len(second.Peers), len(second.PeersRemoved))
	}
}

func TestTwoTailnetsGiveTheSameMachineDifferentNames(t *testing.T) {
	for _, suffix := range []string{"lab.ts.net", "other.ts.net"} {
		net, err := openTailnet(filepath.Join(t.TempDir(), "state"), suffix)
		if err != nil {
			t.Fatal(err)
		}
		if _, name := newMachine("box").join(t, net); name != "box."+suffix+"." {
			t.Errorf("in %s it is called %s", suffix, name)
		}
	}
}

func TestAPolicyLetsThroughTheGrantedPortsOfATagAlone(t *testing.T) {
	net := open(t, filepath.Join(t.TempDir(), "open.json"))
	for name, tag := range map[string]string{"head": "tag:cluster", "p1": "tag:cluster-pod"} {
		m := newMachine(name)
		info := &tailcfg.Hostinfo{Hostname: name, RequestTags: []string{tag}}
		net.join(m.machineKey, &tailcfg.RegisterRequest{NodeKey: m.nodeKey, Hostinfo: info})
	}
	head, pod := net.state.Nodes[0], net.state.Nodes[1]
	if head.Name[:2] == "p1" {
		head, pod = pod, head
	}
	if got := net.filter(head, []*tailcfg.Node{pod}); len(got) != len(packetFilter) {
		t.Fatalf("without a policy: %v", got)
	}
	text := `{"grants": [{"src": ["tag:cluster-pod"], "dst": ["tag:cluster"], "ip": ["tcp:6817", "tcp:60001-60999"]}]}`
	if err := os.WriteFile(net.policyPath(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// The first rule is that of the machine itself, the last that of relays.
	rules := net.filter(head, []*tailcfg.Node{pod})
	if len(rules) != 3 || rules[1].SrcIPs[0] != addresses(pod)[0] {
		t.Fatalf("the head node's rules: %v", rules)
	}
	got := rules[1].DstPorts[:2]
	if got[0].Ports != (tailcfg.PortRange{First: 6817, Last: 6817}) || got[1].Ports.First != 60001 {
		t.Errorf("ports: %v", got)
	}
	if rules := net.filter(pod, []*tailcfg.Node{head}); len(rules) != 2 {
		t.Errorf("the pod's rules: %v", rules)
	}
	if err := os.WriteFile(net.policyPath(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if rules := net.filter(head, []*tailcfg.Node{pod}); len(rules) != 1 {
		t.Errorf("with a broken policy: %v", rules)
	}
}
