package main

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// deaf is how long a connection stays up whose other end says nothing: a machine that is gone in the middle of a word
// closes none, and TCP would send that word again for a quarter of an hour, in which the machine counted as online.
const deaf = 45 * time.Second

// listen opens a TCP port whose connections end when no one is at their other end.
func listen(address string) (net.Listener, error) {
	config := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: deaf / 3, Interval: deaf / 9, Count: 6},
		// Connections have it from the socket that they came by.
		Control: func(_, _ string, socket syscall.RawConn) (err error) {
			set := func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deaf.Milliseconds()))
			}
			if failed := socket.Control(set); failed != nil {
				return failed
			}
			return err
		},
	}
	return config.Listen(context.Background(), "tcp", address)
}

// serve answers HTTP at an address, until that fails.
func serve(address string, handler http.Handler) error {
	listener, err := listen(address)
	if err != nil {
		return err
	}
	return http.Serve(listener, handler)
}
