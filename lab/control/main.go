// Command control is the lab's tailnet: what Tailscale's service is to machines anywhere, for machines in Docker
// networks that cannot reach each other. It runs a control server that lets anyone join, another that asks for an
// auth key (to test wrong ones), a relay (DERP) and a STUN server.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"path/filepath"

	"tailscale.com/net/stunserver"
)

func main() {
	name := flag.String("name", "control.lab", "host name under which every node reaches this server")
	state := flag.String("state", "/state", "folder that remembers the tailnets over a restart")
	authKey := flag.String("authkey", "tskey-lab-right", "auth key that joining on port 8081 takes")
	flag.Parse()

	open := newServer(*name, filepath.Join(*state, "open.json"), "")
	keyed := newServer(*name, filepath.Join(*state, "keyed.json"), *authKey)
	stun := stunserver.New(context.Background())
	go func() { log.Fatal(stun.ListenAndServe(":3478")) }()
	go func() { log.Fatal(serveTLS(open, keyed)) }()
	go func() { log.Fatal(http.ListenAndServe(":8081", keyed)) }()
	log.Fatal(http.ListenAndServe(":8080", open))
}
