package dns

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// fakeServers are servers that answer with their name, are silent, or fail at once.
type fakeServers struct {
	silent, failing map[string]bool

	mu    sync.Mutex
	asked map[string]int
}

func (u *fakeServers) ask(query *dns.Msg, server string, stream bool) (*dns.Msg, error) {
	u.mu.Lock()
	u.asked[server]++
	silent, failing := u.silent[server], u.failing[server]
	u.mu.Unlock()
	switch {
	case failing:
		return nil, errors.New("connection refused")
	case silent:
		time.Sleep(serverPatience)
		return nil, fmt.Errorf("%s: %w", server, os.ErrDeadlineExceeded)
	}
	reply := new(dns.Msg)
	reply.SetReply(query)
	reply.Answer = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: query.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{server}}}
	return reply, nil
}

// Only one query waits for a dead server. The server is tried again in the background, and has its place in the order
// again once it answers.
func TestDeadServerCostsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &fakeServers{silent: map[string]bool{"a": true}, failing: map[string]bool{}, asked: map[string]int{}}
		f := newForwarder([]string{"a", "b"})
		f.ask = u.ask
		query := func(stream bool, from string, took time.Duration) {
			t.Helper()
			q, began := new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT), time.Now()
			reply, err := f.exchange(q, stream)
			got := ""
			if err == nil {
				got = reply.Answer[0].(*dns.TXT).Txt[0]
			}
			if got != from || time.Since(began) != took {
				t.Errorf("%q answers after %v, want %q after %v: %v", got, time.Since(began), from, took, err)
			}
			synctest.Wait()
		}
		query(false, "b", serverPatience)
		for range 100 {
			query(false, "b", 0)
		}
		if u.asked["a"] != 1 {
			t.Errorf("the dead server was asked %d times", u.asked["a"])
		}
		query(true, "b", serverPatience) // over TCP it may answer
		query(true, "b", 0)

		time.Sleep(restFor) // then it is tried in the background
		tried := u.asked["a"]
		for range 10 {
			query(false, "b", 0)
		}
		if n := u.asked["a"] - tried; n != 1 {
			t.Errorf("the dead server was tried %d times after it had rested", n)
		}
		u.silent["a"] = false
		time.Sleep(restFor + serverPatience)
		query(false, "b", 0)
		query(false, "a", 0)

		u.silent["a"], u.silent["b"] = true, true // all are asked all the same
		query(false, "", 2*serverPatience)
		u.silent["b"] = false
		query(false, "b", serverPatience)
		query(false, "b", 0)
		u.silent["a"], u.failing["b"] = false, true // the last one left answers
		query(false, "a", 0)
		u.failing["b"] = false
		query(false, "a", 0)
	})
}

// A server that refuses at once keeps its place in the order: it delays no query.
func TestFailingServerKeepsItsPlace(t *testing.T) {
	u := &fakeServers{silent: map[string]bool{}, failing: map[string]bool{"a": true}, asked: map[string]int{}}
	f := newForwarder([]string{"a", "b"})
	f.ask = u.ask
	for range 3 {
		if _, err := f.exchange(new(dns.Msg).SetQuestion("example.com.", dns.TypeTXT), false); err != nil {
			t.Error(err)
		}
	}
	if u.asked["a"] != 3 || u.asked["b"] != 3 {
		t.Errorf("asked: %v", u.asked)
	}
}
