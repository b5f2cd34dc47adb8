package main

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resolver "github.com/miekg/dns"

	"navarch.io/navarch/cmd/navarch-agent/dns"
	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/shard/relay"
	"navarch.io/navarch/store/obs"
)

// newDNS returns the DNS server of the Pod, or nil if ISTIO_META_DNS_CAPTURE is not true. It returns an error if a
// variable, address or resolv.conf cannot be parsed.
func (o *options) newDNS(id *identity, clients *obs.Sampled) (*dns.Server, error) {
	cfg, err := o.dnsConfig(id, clients)
	if cfg == nil {
		return nil, err
	}
	return dns.New(*cfg), nil
}

// dnsConfig returns the settings of the DNS server. It returns nil and errors in the same cases as newDNS.
func (o *options) dnsConfig(id *identity, clients *obs.Sampled) (*dns.Config, error) {
	text := id.lookup(metaPrefix + "DNS_CAPTURE")
	if text == "" {
		return nil, nil
	}
	captured, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("environment %sDNS_CAPTURE: %q: want true or false", metaPrefix, text)
	}
	if !captured {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(o.dnsAddr)
	if err != nil {
		return nil, fmt.Errorf("DNS address %q: want host:port", o.dnsAddr)
	}
	listen := []string{o.dnsAddr}
	if host == "localhost" {
		listen = []string{net.JoinHostPort("127.0.0.1", port), net.JoinHostPort("::1", port)}
	}
	conf, err := resolver.ClientConfigFromFile(o.resolvConf)
	if err != nil {
		return nil, fmt.Errorf("DNS servers of the Pod: %w", err)
	}
	cfg := &dns.Config{Listen: listen, Place: dns.Place{Namespace: namespaceOf(id), Domain: domainOf(id)}, Log: clients}
	for _, server := range conf.Servers {
		if at := net.JoinHostPort(server, conf.Port); !slices.Contains(listen, at) {
			cfg.Servers = append(cfg.Servers, at)
		}
	}
	if len(conf.Search) > 0 {
		cfg.Place.Search = strings.ToLower(strings.Trim(conf.Search[0], "."))
	}
	return cfg, nil
}

func namespaceOf(id *identity) string {
	return id.node.GetMetadata().GetFields()["NAMESPACE"].GetStringValue()
}

// domainOf returns the DNS suffix of Services, for example svc.cluster.local. It is the last part of the node's ID,
// without the namespace.
func domainOf(id *identity) string {
	parts := strings.Split(id.node.GetId(), "~")
	return strings.TrimPrefix(parts[len(parts)-1], namespaceOf(id)+".")
}

// followNames returns the subscription that passes the control plane's name table to the DNS server. A table that
// cannot be decoded is rejected, and the previous table stays in effect.
func followNames(server *dns.Server) relay.Subscription {
	return relay.Subscription{Type: agentapi.NameTableURL, Take: func(r *discoveryv3.Resource) error {
		names, err := agentapi.DecodeNames(r.GetResource())
		if err != nil {
			return err
		}
		server.Take(names)
		return nil
	}}
}
