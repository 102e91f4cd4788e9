package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"tailscale.com/control/controlhttp/controlhttpserver"
	"tailscale.com/net/tsaddr"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/util/zstdframe"
)

// keepAlive is shorter than the two minutes after which a client takes a silent poll for dead.
const keepAlive = 50 * time.Second

// server speaks the control protocol of Tailscale's clients, as far as the lab needs it. Every member may reach every
// other, unless there is a policy. tailscale.com/tstest/integration/testcontrol is its model: that one forgets all at a
// restart and keeps members that logged out.
type server struct {
	tailnet *tailnet
	relays  *tailcfg.DERPMap
	authKey string // empty: anyone may join
	private *http.ServeMux
	public  *http.ServeMux
}

// relayRule lets every member use any that offers itself as a relay: what a grant of tailscale.com/cap/relay from all to
// all becomes at Tailscale's own control server, for the two ends and for the relay.
var relayRule = tailcfg.FilterRule{
	SrcIPs: []string{"*"},
	CapGrant: []tailcfg.CapGrant{{
		Dsts: []netip.Prefix{tsaddr.AllIPv4(), tsaddr.AllIPv6()},
		Caps: []tailcfg.PeerCapability{tailcfg.PeerCapabilityRelay, tailcfg.PeerCapabilityRelayTarget},
	}},
}

// packetFilter lets every member reach every other.
var packetFilter = append(slices.Clone(tailcfg.FilterAllowAll), relayRule)

type machineKey struct{}

// newServer returns the control server of the tailnet kept in the file path, whose members' names end in suffix. Nodes
// find its relay under name.
func newServer(name, path, suffix, authKey string) *server {
	members, err := openTailnet(path, suffix)
	if err != nil {
		log.Fatalf("%s: %v", path, err)
	}
	s := &server{
		tailnet: members, relays: relayMap(name), authKey: authKey,
		private: http.NewServeMux(), public: http.NewServeMux(),
	}
	go members.watchPolicy()
	s.private.HandleFunc("POST /machine/register", s.register)
	s.private.HandleFunc("POST /machine/map", s.poll)
	s.private.HandleFunc("POST /machine/update-health", func(http.ResponseWriter, *http.Request) {})
	s.public.HandleFunc("GET /key", s.key)
	s.public.HandleFunc("POST /ts2021", s.upgrade)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.public.ServeHTTP(w, r) }

// key tells the server's public key.
func (s *server) key(w http.ResponseWriter, _ *http.Request) {
	reply(w, &tailcfg.OverTLSPublicKeyResponse{PublicKey: s.tailnet.state.ServerKey.Public()})
}

// upgrade turns a connection into an encrypted one from a known machine, and serves HTTP/2 on it.
func (s *server) upgrade(w http.ResponseWriter, r *http.Request) {
	conn, err := controlhttpserver.AcceptHTTP(r.Context(), w, r, s.tailnet.state.ServerKey, nil)
	if err != nil {
		log.Printf("upgrade: %v", err)
		return
	}
	defer conn.Close()
	ctx := context.WithValue(r.Context(), machineKey{}, conn.Peer())
	new(http2.Server).ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: s.private})
}

// register lets a machine join, or leave (its key's expiry is then in the past).
func (s *server) register(w http.ResponseWriter, r *http.Request) {
	var request tailcfg.RegisterRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request.Hostinfo == nil {
		http.Error(w, fmt.Sprintf("bad request: %v", err), http.StatusBadRequest)
		return
	}
	if !request.Expiry.IsZero() && request.Expiry.Before(time.Now()) {
		s.tailnet.leave(request.NodeKey)
		reply(w, &tailcfg.RegisterResponse{NodeKeyExpired: true, MachineAuthorized: true})
		return
	}
	right := s.authKey == "" || (request.Auth != nil && request.Auth.AuthKey == s.authKey)
	if !right && !s.tailnet.member(request.NodeKey) {
		reply(w, &tailcfg.RegisterResponse{Error: "invalid key: API key does not exist"})
		return
	}
	s.tailnet.join(r.Context().Value(machineKey{}).(key.MachinePublic), &request)
	reply(w, &tailcfg.RegisterResponse{
		User:  tailcfg.User{ID: userID, DisplayName: "lab"},
		Login: tailcfg.Login{ID: 1, Provider: "lab", LoginName: "lab@" + s.tailnet.suffix}, MachineAuthorized: true,
	})
}

// poll takes a node's news and, if it asks for a stream, tells it about every change until it hangs up.
func (s *server) poll(w http.ResponseWriter, r *http.Request) {
	var request tailcfg.MapRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.tailnet.member(request.NodeKey) {
		http.Error(w, "no such node", http.StatusNotFound)
		return
	}
	if !request.Stream {
		if !request.ReadOnly {
			s.tailnet.update(&request)
		}
		return
	}
	s.tailnet.poll(request.NodeKey, 1)
	defer s.tailnet.poll(request.NodeKey, -1)
	told := map[tailcfg.NodeID]bool{}
	for {
		self, peers, changed := s.tailnet.view(request.NodeKey)
		if self == nil || send(w, &request, s.news(self, peers, told)) != nil {
			return
		}
		if !wait(w, r, &request, changed) {
			return
		}
	}
}

// wait keeps a stream alive until changed; false when the node has hung up.
func wait(w http.ResponseWriter, r *http.Request, request *tailcfg.MapRequest, changed <-chan struct{}) bool {
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		select {
		case <-r.Context().Done():
			return false
		case <-changed:
			return true
		case <-ticker.C:
			if send(w, request, &tailcfg.MapResponse{KeepAlive: true}) != nil {
				return false
			}
		}
	}
}

// news is the whole tailnet as self sees it; told holds the peers that it knows, and is brought up to date.
func (s *server) news(self *tailcfg.Node, peers []*tailcfg.Node, told map[tailcfg.NodeID]bool) *tailcfg.MapResponse {
	now := time.Now()
	response := &tailcfg.MapResponse{
		Node: self, Peers: peers, DERPMap: s.relays, Domain: s.tailnet.suffix, ControlTime: &now,
		DNSConfig:    &tailcfg.DNSConfig{Proxied: true, Domains: []string{s.tailnet.suffix}},
		PacketFilter: s.tailnet.filter(self, peers), CollectServices: "false",
		UserProfiles: []tailcfg.UserProfile{{ID: userID, LoginName: "lab@" + s.tailnet.suffix, DisplayName: "lab"}},
		// Nothing of the lab goes to Tailscale's log service.
		Debug: &tailcfg.Debug{DisableLogTail: true},
	}
	for _, peer := range peers {
		delete(told, peer.ID)
	}
	// All clients have gone.
	for id := range told {
		response.PeersRemoved = append(response.PeersRemoved, id)
	}
	clear(told)
	for _, peer := range peers {
		told[peer.ID] = true
	}
	return response
}

// send writes one message of a stream: its length in four bytes, then JSON, compressed if the node can take that.
func send(w http.ResponseWriter, request *tailcfg.MapRequest, response *tailcfg.MapResponse) error {
	text, err := json.Marshal(response)
	if err != nil {
		return err
	}
	if request.Compress == "zstd" {
		text = zstdframe.AppendEncode(nil, text, zstdframe.FastestCompression)
	}
	var message bytes.Buffer
	message.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	message.Write(text)
	if _, err := w.Write(message.Bytes()); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}

func reply(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		log.Printf("reply: %v", err)
	}
}
