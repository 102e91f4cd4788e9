// Command control is the lab's tailnet: a control server, a relay (DERP) and a STUN server for machines in
// networks that cannot reach each other.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stunserver"
	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/key"
)

func main() {
	name := flag.String("name", "control.lab", "host name under which every node reaches this server")
	_ = flag.String("state", "/state", "folder for state")
	authKey := flag.String("authkey", "tskey-lab-right", "auth key required on port 8081")
	flag.Parse()
	serveRelay(":8443")
	stun := stunserver.New(context.Background())
	go func() { log.Fatal(stun.ListenAndServe(":3478")) }()
	go func() { log.Fatal(http.ListenAndServe(":8081", control(*name, "8081", *authKey))) }()
	log.Fatal(http.ListenAndServe(":8080", control(*name, "8080", "")))
}

func serveRelay(address string) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	relay := httptest.NewUnstartedServer(derpserver.Handler(derpserver.New(key.NewNode(), log.Printf)))
	relay.Listener.Close()
	relay.Listener = listener
	relay.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	relay.StartTLS()
}

func control(name, port, authKey string) *testcontrol.Server {
	return &testcontrol.Server{
		RequireAuthKey:   authKey,
		AllNodesSameUser: true,
		AllOnline:        true,
		ExplicitBaseURL:  "http://" + name + ":" + port,
		MagicDNSDomain:   "lab.ts.net",
		DNSConfig:        &tailcfg.DNSConfig{Proxied: true, Domains: []string{"lab.ts.net"}},
		DERPMap: &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{1: {
			RegionID: 1, RegionCode: "lab", RegionName: "lab",
			Nodes: []*tailcfg.DERPNode{{
				Name: "1", RegionID: 1, HostName: name, STUNPort: 3478, DERPPort: 8443, InsecureForTests: true,
			}},
		}}},
	}
}
