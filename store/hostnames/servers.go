package hostnames

import (
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

// How long an answer is good, whatever it says, as istiod bounds it: changes of gateways are changes for every proxy.
const (
	leastTTL = 30 * time.Second
	mostTTL  = time.Hour
)

// timeout of one question to one server.
const timeout = 2 * time.Second

// Servers are DNS servers as host:port, which are asked one after the other until one answers.
type Servers []string

// System are those of a resolv.conf. An error: the file cannot be read, or names no server.
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
		return nil, fmt.Errorf("%s names no server", file)
	}
	return all, nil
}

// family is the answer to one question.
type family struct {
	addresses []string
	ttl       time.Duration
	err       error // nobody answered, or said that it cannot, or that there is no such name
}

// Resolve asks for the IPv4 and the IPv6 addresses of an absolute name. Of a family about which nobody answers, or of a name that is gone, what
// was known before stands.
func (s Servers) Resolve(ctx context.Context, name string, before []string) Answer {
	types := [2]uint16{dns.TypeA, dns.TypeAAAA}
	var families [2]family
	var asking sync.WaitGroup
	for i := range types {
		asking.Go(func() { families[i] = s.ask(ctx, name, types[i]) })
	}
	asking.Wait()
	a := Answer{Again: mostTTL}
	var wrong []string
	for i, f := range families {
		if f.err != nil {
			f.ttl = leastTTL
			wrong = append(wrong, fmt.Sprintf("%s: %s", dns.TypeToString[types[i]], problem.Cause(f.err)))
			for _, address := range before {
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
	if a.Wrong = strings.Join(wrong, "; "); len(a.Addresses) == 0 && a.Wrong == "" {
		a.Addresses, a.Again, a.Wrong = before, leastTTL, "it has no address"
	}
	if len(a.Addresses) > most {
		a.Addresses, a.Wrong = a.Addresses[:most], fmt.Sprintf("it has %d addresses, of which the first %d are used", len(a.Addresses), most)
	}
	return a
}

var errNoName = errors.New("there is no such name")

// ask asks one question of the servers.
func (s Servers) ask(ctx context.Context, name string, kind uint16) family {
	question := new(dns.Msg)
	question.SetQuestion(dns.Fqdn(name), kind)
	question.SetEdns0(1232, false)
	err := errors.New("no server is known")
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

// exchange asks one server, by TCP where the answer is too long for UDP.
func exchange(ctx context.Context, question *dns.Msg, server string) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, _, err := (&dns.Client{Net: "udp", UDPSize: 1232}).ExchangeContext(ctx, question, server)
	if err == nil && reply.Truncated {
		reply, _, err = (&dns.Client{Net: "tcp"}).ExchangeContext(ctx, question, server)
	}
	return reply, err
}

// read takes the addresses of a reply: at most those that a gateway can have.
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
		default: // CNAME: its target's addresses are there too
			continue
		}
		ip, ok := netip.AddrFromSlice(raw)
		if ip = ip.Unmap(); ok && ip.Is4() == (kind == dns.TypeA) && !ip.IsUnspecified() && !ip.IsLoopback() && !ip.IsMulticast() {
			f.addresses = append(f.addresses, ip.String())
		}
	}
	return f
}
