package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/util/dnsname"
)

const userID = tailcfg.UserID(1)

// tailnet is the members of one tailnet. It is written to a file at each change, so that a restarted server knows
// its nodes, and they keep their addresses.
type tailnet struct {
	path   string
	suffix string // of its members' full names

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	polls   map[tailcfg.NodeID]int
	state   savedState
}

// savedState is what the file holds.
type savedState struct {
	ServerKey key.MachinePrivate
	NextID    tailcfg.NodeID
	Nodes     []*tailcfg.Node
}

// openTailnet reads the tailnet in the file path, or starts a new one if the file does not exist.
func openTailnet(path, suffix string) (*tailnet, error) {
	t := &tailnet{path: path, suffix: suffix, changed: make(chan struct{}), polls: map[tailcfg.NodeID]int{}}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		t.state = savedState{ServerKey: key.NewMachine(), NextID: 1}
		return t, t.save()
	}
	if err != nil {
		return nil, err
	}
	return t, json.Unmarshal(text, &t.state)
}

// save writes the file; a server cut off while writing leaves the old one.
func (t *tailnet) save() error {
	text, err := json.Marshal(t.state)
	if err != nil {
		return err
	}
	if err := os.WriteFile(t.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(t.path+".new", t.path)
}

// publish saves the state and wakes every poll; t.mu is held.
func (t *tailnet) publish() {
	if err := t.save(); err != nil {
		log.Fatalf("cannot save the tailnet: %v", err)
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// find returns the node that match picks, or nil; t.mu is held.
func (t *tailnet) find(match func(*tailcfg.Node) bool) *tailcfg.Node {
	if at := slices.IndexFunc(t.state.Nodes, match); at >= 0 {
		return t.state.Nodes[at]
	}
	return nil
}

// member reports whether a node key belongs to the tailnet.
func (t *tailnet) member(nodeKey key.NodePublic) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(func(n *tailcfg.Node) bool { return n.Key == nodeKey }) != nil
}

// join adds a machine or, where its machine key is known, gives it its new node key. The address is the machine's
// for as long as it stays a member, and no other's after it left. A machine that is created again under the name of one
// that is offline takes that one's place; under the name of one that is online it is called name-1.
func (t *tailnet) join(machine key.MachinePublic, request *tailcfg.RegisterRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.find(func(n *tailcfg.Node) bool { return n.Machine == machine })
	if node == nil {
		node = t.find(func(n *tailcfg.Node) bool {
			return n.Name == t.fullName(dnsname.SanitizeHostname(request.Hostinfo.Hostname)) && t.polls[n.ID] == 0
		})
	}
	if node == nil {
		node = t.add()
	}
	node.Machine, node.Key, node.Cap = machine, request.NodeKey, request.Version
	t.describe(node, request.Hostinfo)
	t.publish()
}

// add makes a node with the next free address; t.mu is held.
func (t *tailnet) add() *tailcfg.Node {
	id := t.state.NextID
	t.state.NextID++
	v4 := netip.AddrFrom4([4]byte{100, 64, byte(id >> 8), byte(id)})
	v6 := tsaddr.Tailscale4To6(v4)
	addresses := []netip.Prefix{netip.PrefixFrom(v4, 32), netip.PrefixFrom(v6, 128)}
	node := &tailcfg.Node{
		ID: id, StableID: tailcfg.StableNodeID(fmt.Sprintf("lab%d", id)), User: userID, Created: time.Now().UTC(),
		Addresses: addresses, AllowedIPs: addresses, MachineAuthorized: true,
	}
	t.state.Nodes = append(t.state.Nodes, node)
	return node
}

func (t *tailnet) fullName(host string) string { return host + "." + t.suffix + "." }

// describe takes over what a machine says about itself; t.mu is held.
func (t *tailnet) describe(node *tailcfg.Node, info *tailcfg.Hostinfo) {
	if info == nil {
		return
	}
	host := dnsname.SanitizeHostname(info.Hostname)
	name := host
	for count := 1; t.find(func(n *tailcfg.Node) bool { return n != node && n.Name == t.fullName(name) }) != nil; count++ {
		name = fmt.Sprintf("%s-%d", host, count)
	}
	node.Name, node.Hostinfo, node.Tags = t.fullName(name), info.View(), info.RequestTags
	if info.NetInfo != nil {
		node.HomeDERP = cmp.Or(info.NetInfo.PreferredDERP, node.HomeDERP)
	}
}

// leave removes the member with a node key, if there is one.
func (t *tailnet) leave(nodeKey key.NodePublic) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Nodes = slices.DeleteFunc(t.state.Nodes, func(n *tailcfg.Node) bool { return n.Key == nodeKey })
	t.publish()
}

// update takes over where a node says that it can be reached.
func (t *tailnet) update(request *tailcfg.MapRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.find(func(n *tailcfg.Node) bool { return n.Key == request.NodeKey })
	if node == nil {
		return
	}
	node.DiscoKey, node.Cap, node.Endpoints = request.DiscoKey, request.Version, request.Endpoints
	t.describe(node, request.Hostinfo)
	t.publish()
}

// poll counts the open polls of a node, which is online while it has one.
func (t *tailnet) poll(nodeKey key.NodePublic, step int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := t.find(func(n *tailcfg.Node) bool { return n.Key == nodeKey })
	if node == nil {
		return
	}
	t.polls[node.ID] += step
	if t.polls[node.ID] == 0 {
		now := time.Now().UTC()
		node.LastSeen = &now
	}
	t.publish()
}

// view returns copies of the member with a node key (nil without one) and of the others by number, and a channel
// that is closed at the next change.
func (t *tailnet) view(nodeKey key.NodePublic) (self *tailcfg.Node, peers []*tailcfg.Node, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, node := range t.state.Nodes {
		copied, online := node.Clone(), t.polls[node.ID] > 0
		copied.Online = &online
		if node.Key == nodeKey {
			self = copied
		} else {
			peers = append(peers, copied)
		}
	}
	return self, peers, t.changed
}
