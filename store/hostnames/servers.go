package hostnames

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"navarch.io/navarch/store/problem"
)

// Bounds of the TTL of a response, as in istiod. Each change of a gateway's addresses changes the configuration of
// every proxy.
const (
	leastTTL = 30 * time.Second
	mostTTL  = time.Hour
)

// timeout bounds one query to one server, by UDP and TCP together.
const timeout = 2 * time.Second

// Servers are DNS servers as host:port. They are queried one after the other, until a server returns success, or
// returns that the name does not exist. A query to one server takes 2 s at most. Servers is safe for concurrent use.
type Servers []string

// System returns the servers of a resolv.conf, in the order of the file. It returns an error if the file cannot be
// read, or lists no server.
func System(file string) (Servers, error) {
	conf, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, err
	}
	var all Servers
	for _, server := range conf.Servers {
		all = append(all, net.JoinHostPort(server, conf.Port))
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s lists no server", file)
	}
	return all, nil
}

// family is the response to one query, for either the IPv4 or the IPv6 addresses of a name.
type family struct {
	addresses []string
	ttl       time.Duration // at most mostTTL
	err       error         // no server answered, all servers failed, or the name does not exist
}

// Resolve queries the IPv4 and the IPv6 addresses of an absolute name. The argument previous has the addresses of the
// previous Answer. If the query of a family fails, or the name does not exist, the result has the previous addresses of
// that family. If this gives no address at all, the result has all previous addresses. At most 16 addresses are
// returned. Answer.Wrong is set if a query fails, if the name does not exist, if there is no address, or if there are
// more than 16. Answer.Again is the shorter TTL of both responses, between 30 s and 1 h. It is 30 s after a failure or
// without addresses. Resolve blocks until both queries have ended, or ctx ends. The end of ctx counts as a failure.
func (s Servers) Resolve(ctx context.Context, name string, previous []string) Answer {
	types := [2]uint16{dns.TypeA, dns.TypeAAAA}
	var families [2]family
	var asking sync.WaitGroup
	for i := range types {
		asking.Go(func() { families[i] = s.query(ctx, name, types[i]) })
	}
	asking.Wait()
	a := Answer{Again: mostTTL}
	var wrong []string
	for i, f := range families {
		if f.err != nil {
			f.ttl = leastTTL
			wrong = append(wrong, fmt.Sprintf("%s: %s", dns.TypeToString[types[i]], problem.Cause(f.err)))
			for _, address := range previous {
				if ip, err := netip.ParseAddr(address); err == nil && ip.Is4() == (types[i] == dns.TypeA) {
					f.addresses = append(f.addresses, address)
				}
			}
		}
		a.Addresses = append(a.Addresses, f.addresses...)
		a.Again = min(a.Again, max(f.ttl, leastTTL))
	}
	slices.Sort(a.Addresses)
	a.Addresses = slices.Compact(a.Addresses)
	if a.Wrong = strings.Join(wrong, "; "); len(a.Addresses) == 0 {
		a.Addresses, a.Again, a.Wrong = previous, leastTTL, cmp.Or(a.Wrong, "it has no address")
	}
	if len(a.Addresses) > most {
		a.Addresses, a.Wrong = a.Addresses[:most], fmt.Sprintf("it has %d addresses, of which the first %d are used", len(a.Addresses), most)
	}
	return a
}

var errNoName = errors.New("there is no such name")

// query sends one query to the servers, one after the other. If no server returns addresses, the result contains the
// error of the last server, or errNoName.
func (s Servers) query(ctx context.Context, name string, kind uint16) family {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), kind)
	question.SetEdns0(1232, false)
	err := errors.New("no DNS server is known")
	for _, server := range s {
		var reply *dns.Msg
		if reply, err = exchange(ctx, question, server); err != nil {
			continue
		}
		switch reply.Rcode {
		case dns.RcodeSuccess:
			return read(reply, kind)
		case dns.RcodeNameError:
			return family{err: errNoName}
		}
		err = fmt.Errorf("%s answers %s", server, dns.RcodeToString[reply.Rcode])
	}
	return family{err: err}
}

// exchange queries one server, over TCP if the response is too long for UDP.
func exchange(ctx context.Context, question *dns.Msg, server string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, _, err := (&dns.Client{Net: "udp", UDPSize: 1232}).ExchangeContext(ctx, question, server)
	if err == nil && reply.Truncated {
		reply, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, question, server)
	}
	return reply, err
}

// read returns the addresses of a reply, without unspecified, loopback and multicast ones. The ttl is the shortest of
// all records, at most mostTTL.
func read(reply *dns.Msg, kind uint16) family {
	f := family{ttl: mostTTL}
	for _, record := range reply.Answer {
		f.ttl = min(f.ttl, time.Duration(record.Header().Ttl)*time.Second)
		var raw net.IP
		switch r := record.(type) {
		case *dns.A:
			raw = r.A
		case *dns.AAAA:
			raw = r.AAAA
		default: // CNAME: the reply has the addresses of its target too
			continue
		}
		ip, ok := netip.AddrFromSlice(raw)
		if ip = ip.Unmap(); ok && ip.Is4() == (kind == dns.TypeA) && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast() {
			f.addresses = append(f.addresses, ip.String())
		}
	}
	return f
}
