//go:build kube

package kube

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// link is the way of a source to its API server, which can be cut.
type link struct {
	listener net.Listener
	to       string

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// linkTo opens a proxy to a control plane until the test ends, and returns the kubeconfig that uses it.
func linkTo(t *testing.T, c *controlplane.ControlPlane) (*link, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{listener: listener, to: c.Address()}
	go l.serve()
	t.Cleanup(func() {
		_ = listener.Close()
		l.setCut(true)
	})
	raw, err := os.ReadFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(raw), c.Address(), listener.Addr().String())), 0o600); err != nil {
		t.Fatal(err)
	}
	return l, path
}

func (l *link) serve() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		cut := l.cut
		l.mu.Unlock()
		far, err := net.Dial("tcp", l.to)
		if cut || err != nil {
			_ = near.Close()
			if err == nil {
				_ = far.Close()
			}
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		l.mu.Unlock()
		carry := func(to, from net.Conn) {
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
		}
		go carry(near, far)
		go carry(far, near)
	}
}

// setCut closes every connection and refuses new ones, or accepts them again.
func (l *link) setCut(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	if cut {
		for _, c := range l.conns {
			_ = c.Close()
		}
		l.conns = nil
	}
}
