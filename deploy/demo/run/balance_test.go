package main

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

// balancer acts as a Service of a cluster: it forwards connections to one address to its listeners in turn. A listener
// counts as unhealthy only if it refuses a connection.
type balancer struct {
	mu    sync.Mutex
	to    []string
	next  int
	conns map[net.Conn]bool
}

func balance(t *testing.T, at string, to ...string) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{to: to, conns: map[net.Conn]bool{}}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		b.closeAll()
		all.Wait()
	})
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.carry(conn) })
		}
	})
}

func (b *balancer) closeAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.conns {
		c.Close()
	}
	b.conns = nil
}

// hold reports whether a connection may begin.
func (b *balancer) hold(c net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns == nil {
		return false
	}
	b.conns[c] = true
	return true
}

func (b *balancer) dial() (c net.Conn, err error) {
	b.mu.Lock()
	order := append(slices.Clone(b.to[b.next:]), b.to[:b.next]...)
	b.next = (b.next + 1) % len(b.to)
	b.mu.Unlock()
	for _, one := range order {
		var bad error
		if c, bad = net.Dial("tcp", one); bad == nil {
			return c, nil
		}
		err = errors.Join(err, bad)
	}
	return nil, err
}

func (b *balancer) carry(in net.Conn) {
	defer in.Close()
	out, err := b.dial()
	if err != nil {
		return
	}
	defer out.Close()
	if !b.hold(in) || !b.hold(out) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // the end of one is the end of both
			in.Close()
			out.Close()
		})
	}
	both.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, in)
	delete(b.conns, out)
}
