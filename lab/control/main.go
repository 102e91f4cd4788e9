// Command control is the lab's tailnet: what Tailscale's service is to machines anywhere, for machines in Docker
// networks that cannot reach each other. It runs a control server that lets anyone join, another that asks for an
// auth key (to test wrong ones), a third for a tailnet that is not the cluster's (to test machines that are in one
// already), a relay (DERP) and a STUN server.
package main

import (
	"context"
	"flag"
	"log"
	"path/filepath"

	"tailscale.com/net/stunserver"
)

func main() {
	name := flag.String("name", "control.lab", "host name under which every node reaches this server")
	state := flag.String("state", "/state", "folder that remembers the tailnets over a restart")
	authKey := flag.String("authkey", "tskey-lab-right", "auth key that joining on port 8081 takes")
	flag.Parse()

	open := newServer(*name, filepath.Join(*state, "open.json"), "lab.ts.net", "")
	keyed := newServer(*name, filepath.Join(*state, "keyed.json"), "lab.ts.net", *authKey)
	other := newServer(*name, filepath.Join(*state, "other.json"), "other.ts.net", "")
	stun := stunserver.New(context.Background())
	go func() { log.Fatal(stun.ListenAndServe(":3478")) }()
	go func() { log.Fatal(serveTLS(open, keyed, other)) }()
	go func() { log.Fatal(serve(":8081", keyed)) }()
	go func() { log.Fatal(serve(":8082", other)) }()
	log.Fatal(serve(":8080", open))
}
