package scene

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// request is a connection, and what is asked on it.
type request struct {
	*proxy
	url     *url.URL
	ip      string // where the application connects to
	port    uint32
	method  string
	headers map[string]string
	as      string // the identity in the caller's certificate, with which it speaks mTLS; empty: it has none
	peer    string // that the handshake has made sure of
	from    string // the caller's address
	out     strings.Builder
}

func (r *request) say(format string, args ...any) {
	fmt.Fprintf(&r.out, format+"\n", args...)
}

func (s *stage) call(args []string) (string, error) {
	a, r, err := s.request(args)
	if err != nil {
		return "", err
	}
	if r.ip == "" {
		r.ip = s.resolve(r.url.Hostname(), a.view.Namespace)
	}
	r.enter(xds.VirtualOutbound)
	return short(r.out.String()), nil
}

func (s *stage) receive(args []string) (string, error) {
	a, r, err := s.request(args)
	if err != nil {
		return "", err
	}
	r.ip = cmp.Or(r.ip, a.view.Addresses[0])
	r.enter(xds.VirtualInbound)
	return short(r.out.String()), nil
}

// talk answers the questions in a transcript again; comments and blank lines stand.
func (s *stage) talk(args []string) (string, error) {
	if len(args) != 2 {
		return "", errors.New("want PROXY FILE")
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, args[1]))
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for line := range strings.Lines(string(raw)) {
		question, asks := strings.CutPrefix(line, "> ")
		if asks || strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			out.WriteString(line)
		}
		if !asks {
			continue
		}
		words := append([]string{"", args[0]}, strings.Fields(question)...)
		ask := map[string]step{"call": (*stage).call, "receive": (*stage).receive}[words[2]]
		if ask == nil {
			return "", fmt.Errorf("%q: want > call URL or > receive URL", line)
		}
		answer, err := ask(s, append(words[1:2], words[3:]...))
		if err != nil {
			return "", fmt.Errorf("%s: %w", question, err)
		}
		out.WriteString(answer)
	}
	return out.String(), nil
}

// request reads PROXY URL [METHOD] [to=IP[:PORT]] [from=IP] [as=TRUST-DOMAIN/ns/NS/sa/SA] [HEADER=VALUE]...
func (s *stage) request(args []string) (*actor, *request, error) {
	a, err := s.actor(args)
	if err != nil || len(args) < 2 {
		return nil, nil, errors.Join(err, errors.New("want PROXY URL [METHOD] [to=IP] [HEADER=VALUE]"))
	}
	if err := s.settle(); err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(args[1])
	if err != nil {
		return nil, nil, err
	}
	r := &request{proxy: a.proxy, url: u, method: "GET"}
	r.port = map[string]uint32{"http": 80, "https": 443, "h2c": 80}[u.Scheme]
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return nil, nil, err
		}
		r.port = uint32(n)
	}
	r.headers = map[string]string{}
	for _, arg := range args[2:] {
		key, value, is := strings.Cut(arg, "=")
		switch {
		case !is:
			r.method = arg
		case key == "to":
			r.ip = value
			if at, err := netip.ParseAddrPort(value); err == nil {
				r.ip, r.port = at.Addr().String(), uint32(at.Port())
			}
		case key == "from":
			r.from = value
		case key == "as":
			r.as = "spiffe://" + value
		default:
			r.headers[strings.ToLower(key)] = value
		}
	}
	for k, v := range map[string]string{":method": r.method, ":authority": u.Host, ":scheme": u.Scheme, ":path": u.RequestURI()} {
		if _, is := r.headers[k]; !is {
			r.headers[k] = v
		}
	}
	return a, r, nil
}

// resolve is the cluster's DNS: the address of a name, as an application in a namespace finds it.
func (s *stage) resolve(host, namespace string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	snapshot := s.pipeline.mirror.Current()
	for _, name := range []string{host + "." + namespace + suffix, host + suffix, host + ".cluster.local", host} {
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			for r := range snapshot.ByHost(kind, name) {
				if all := r.(*model.Service).Spec.GetAddresses(); len(all) > 0 {
					return all[0]
				}
			}
		}
		for r := range snapshot.ByHost(model.KindEndpoints, name) {
			for _, e := range r.(*model.Endpoints).Spec.GetEndpoints() {
				if ip, err := netip.ParseAddr(e.GetAddress()); err == nil {
					return ip.String()
				}
			}
		}
	}
	return "203.0.113.1" // outside
}

// enter finds the listener as Envoy does: the connection is redirected to a virtual listener, which hands it to the one
// at its original destination, or at its port, or keeps it.
func (r *request) enter(virtual string) {
	all := holds[*listenerv3.Listener](r.proxy, xds.Listener)
	own := all[virtual]
	at := func(l *listenerv3.Listener, address string) bool {
		if pipe := l.GetAddress().GetPipe(); pipe != nil {
			return "unix://"+pipe.GetPath() == address
		}
		a := l.GetAddress().GetSocketAddress()
		return l != own && a.GetAddress() == address && a.GetPortValue() == r.port
	}
	for _, address := range []string{r.ip, "0.0.0.0"} {
		for _, l := range all {
			free := l.GetBindToPort() == nil || l.GetBindToPort().GetValue()
			if at(l, address) && (free || own != nil && virtual == xds.VirtualOutbound) {
				r.accept(l)
				return
			}
		}
	}
	if own == nil {
		r.say("not redirected, and nothing listens at %s", net.JoinHostPort(r.ip, fmt.Sprint(r.port)))
		return
	}
	r.accept(own)
}

func (r *request) accept(l *listenerv3.Listener) {
	chain := r.chain(l)
	if chain == nil {
		r.say("listener %s closes the connection: no filter chain", l.GetName())
		return
	}
	r.say("listener %s chain %s", l.GetName(), cmp.Or(chain.GetName(), "-"))
	if !r.handshake(chain) {
		return
	}
	for _, f := range chain.GetFilters() {
		manager, tcp := &hcmv3.HttpConnectionManager{}, &tcpv3.TcpProxy{}
		switch any := f.GetTypedConfig(); {
		case any.MessageIs(manager):
			if err := any.UnmarshalTo(manager); err != nil {
				r.say("%v", err)
				return
			}
			r.http(manager)
			return
		case any.MessageIs(tcp):
			if err := any.UnmarshalTo(tcp); err != nil {
				r.say("%v", err)
				return
			}
			if tcp.GetCluster() != "" {
				r.reach("to", tcp.GetCluster())
			}
			for _, w := range tcp.GetWeightedClusters().GetClusters() {
				r.reach(fmt.Sprint(w.GetWeight()), w.GetName())
			}
			return
		default:
			r.say("network filter %s", f.GetName())
			if r.denied(any) {
				return
			}
		}
	}
}

// chain picks the filter chain: of each property in Envoy's order, the most specific that matches counts
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener_components.proto#config-listener-v3-filterchainmatch).
func (r *request) chain(l *listenerv3.Listener) *listenerv3.FilterChain {
	protocol, applications := "raw_buffer", []string(nil)
	inspects := func(name string) bool {
		return slices.ContainsFunc(l.GetListenerFilters(), func(f *listenerv3.ListenerFilter) bool { return f.GetName() == "envoy.filters.listener."+name })
	}
	sni := ""
	switch {
	case r.as != "" && inspects("tls_inspector"): // a proxy of the mesh calls, and says so by ALPN
		protocol, applications = "tls", []string{"istio-peer-exchange", "istio"}
		if r.url.Scheme == "http" {
			applications = []string{"istio-http/1.1"}
		}
	case (r.url.Scheme == "https" || r.url.Scheme == "tls") && inspects("tls_inspector"):
		protocol, sni = "tls", r.url.Hostname()
	case r.url.Scheme == "http" && inspects("http_inspector"):
		applications = []string{"http/1.1"}
	case r.url.Scheme == "h2c" && inspects("http_inspector"):
		applications = []string{"h2c"}
	}
	left := l.GetFilterChains()
	for _, score := range []func(*listenerv3.FilterChainMatch) int{
		func(m *listenerv3.FilterChainMatch) int {
			return rank(m.GetDestinationPort() != nil, m.GetDestinationPort().GetValue() == r.port, 1)
		},
		func(m *listenerv3.FilterChainMatch) int { return r.prefixRank(m) },
		func(m *listenerv3.FilterChainMatch) int { return sniRank(m.GetServerNames(), sni) },
		func(m *listenerv3.FilterChainMatch) int {
			return rank(m.GetTransportProtocol() != "", m.GetTransportProtocol() == protocol, 1)
		},
		func(m *listenerv3.FilterChainMatch) int {
			return rank(len(m.GetApplicationProtocols()) > 0, slices.ContainsFunc(m.GetApplicationProtocols(), func(p string) bool { return slices.Contains(applications, p) }), 1)
		},
	} {
		best := 0
		for _, c := range left {
			best = max(best, score(c.GetFilterChainMatch()))
		}
		left = slices.DeleteFunc(slices.Clone(left), func(c *listenerv3.FilterChain) bool { return score(c.GetFilterChainMatch()) != best })
	}
	if len(left) == 0 {
		return l.GetDefaultFilterChain()
	}
	return left[0]
}

// rank is how specific a property matches: -1 not at all, 0 because it says nothing.
func rank(says, matches bool, specific int) int {
	switch {
	case !says:
		return 0
	case matches:
		return specific
	}
	return -1
}

func (r *request) prefixRank(m *listenerv3.FilterChainMatch) int {
	best := -1
	ip, err := netip.ParseAddr(r.ip)
	for _, p := range m.GetPrefixRanges() {
		a, bad := netip.ParseAddr(p.GetAddressPrefix())
		if err == nil && bad == nil && netip.PrefixFrom(a, int(p.GetPrefixLen().GetValue())).Contains(ip) {
			best = max(best, 1+int(p.GetPrefixLen().GetValue()))
		}
	}
	return rank(len(m.GetPrefixRanges()) > 0, best >= 0, best)
}

func sniRank(patterns []string, sni string) int {
	best := -1
	for _, p := range patterns {
		switch {
		case p == sni: // before a wildcard of the same length
			best = max(best, len(p)+1)
		case strings.HasPrefix(p, "*.") && strings.HasSuffix(sni, p[1:]):
			best = max(best, len(p))
		}
	}
	return rank(len(patterns) > 0, best >= 0, best)
}
