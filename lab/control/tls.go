package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"

	"tailscale.com/control/controlbase"
	"tailscale.com/control/controlhttp/controlhttpcommon"
	"tailscale.com/derp/derpserver"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
)

// serveTLS runs the relay (DERP) on port 443, with a certificate made for tests, which its clients do not check.
// A client that has lost its control server comes there too, for two minutes and whatever port it received: only its
// handshake shows which of the servers it means.
func serveTLS(servers ...*server) error {
	listener, err := listen(":443")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", derpserver.Handler(derpserver.New(key.NewNode(), log.Printf)))
	mux.HandleFunc("POST /ts2021", func(w http.ResponseWriter, r *http.Request) {
		for _, s := range servers {
			if meant(r, s.tailnet.state.ServerKey) {
				s.upgrade(w, r)
				return
			}
		}
		http.Error(w, "no control server here has this key", http.StatusBadRequest)
	})
	server := httptest.NewUnstartedServer(mux)
	server.Listener.Close()
	server.Listener = listener
	// Both protocols upgrade HTTP/1.1 connections; HTTP/2 must not be offered.
	server.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	server.StartTLS()
	select {}
}

// meant reports whether the handshake that opens a request was made for the server with this key.
func meant(r *http.Request, private key.MachinePrivate) bool {
	opening, err := base64.StdEncoding.DecodeString(r.Header.Get(controlhttpcommon.HandshakeHeaderName))
	if err != nil {
		return false
	}
	near, far := net.Pipe()
	defer far.Close()
	defer near.Close()
	go io.Copy(io.Discard, far)
	_, err = controlbase.Server(context.Background(), near, private, opening)
	return err == nil
}

// relayMap describes the relay and the STUN server on the host called name to nodes.
func relayMap(name string) *tailcfg.DERPMap {
	return &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{1: {
		RegionID: 1, RegionCode: "lab", RegionName: "lab",
		Nodes: []*tailcfg.DERPNode{{
			Name: "1", RegionID: 1, HostName: name, STUNPort: 3478, DERPPort: 443, InsecureForTests: true,
		}},
	}}}
}
