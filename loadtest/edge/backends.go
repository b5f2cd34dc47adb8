package edge

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	backendPort = 9080
	dnsPort     = 9053
	// dnsAddress is the last number of the DNS server's address.
	dnsAddress = 4
	// slowPath is answered after slowTime, so that requests are under way when a change comes into effect.
	slowPath = "/slow"
	slowTime = 100 * time.Millisecond
)

// backends are servers at all addresses of a network. Each answers with its address and the request's body.
type backends struct {
	server    *http.Server
	listeners []net.Listener
	resolver  *dns.Server

	mu    sync.Mutex
	names map[string]string // address by DNS name, with a final dot
}

// serveBackends listens at the addresses from firstAddress on, up to the given last number, and at dnsAddress.
func serveBackends(network string, last int) (*backends, error) {
	b := &backends{names: map[string]string{}}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	b.server = &http.Server{Handler: http.HandlerFunc(echo), Protocols: protocols, ReadHeaderTimeout: time.Minute}
	for n := firstAddress; n < last; n++ {
		l, err := net.Listen("tcp", fmt.Sprintf("%s.%d:%d", network, n, backendPort))
		if err != nil {
			b.close()
			return nil, err
		}
		b.listeners = append(b.listeners, l)
		go func() { _ = b.server.Serve(l) }()
	}
	socket, err := net.ListenPacket("udp", fmt.Sprintf("%s.%d:%d", network, dnsAddress, dnsPort))
	if err != nil {
		b.close()
		return nil, err
	}
	b.resolver = &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(b.resolve)}
	go func() { _ = b.resolver.ActivateAndServe() }()
	return b, nil
}

// echo sends the request's body back, behind the address that the request was sent to.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.URL.Path == slowPath {
		select {
		case <-time.After(slowTime):
		case <-r.Context().Done():
		}
	}
	local, _, _ := net.SplitHostPort(fmt.Sprint(r.Context().Value(http.LocalAddrContextKey)))
	fmt.Fprintf(w, "%s %s", local, body)
}

// name defines a DNS name.
func (b *backends) name(name, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[name+"."] = address
}

// resolve answers questions about the defined names. Others do not exist.
func (b *backends) resolve(w dns.ResponseWriter, q *dns.Msg) {
	reply := new(dns.Msg).SetReply(q)
	for _, one := range q.Question {
		b.mu.Lock()
		address, known := b.names[strings.ToLower(one.Name)]
		b.mu.Unlock()
		switch {
		case !known:
			reply.Rcode = dns.RcodeNameError
		case one.Qtype == dns.TypeA:
			head := dns.RR_Header{Name: one.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}
			reply.Answer = append(reply.Answer, &dns.A{Hdr: head, A: net.ParseIP(address)})
		}
	}
	_ = w.WriteMsg(reply) // a lost answer is asked for again
}

func (b *backends) close() {
	err := b.server.Close()
	for _, l := range b.listeners {
		err = errors.Join(err, l.Close())
	}
	if b.resolver != nil {
		err = errors.Join(err, b.resolver.Shutdown())
	}
	_ = err // listeners are closed by the server already
}
