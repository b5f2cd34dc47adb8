// Package view says what may decide a proxy's configuration: a node and a snapshot in, a View out, with the proxy's
// identity removed, so that proxies which get the same are the same.
//
// Owns: nothing; values are immutable.  Reads: store/mirror.  Never: builds anything; a clock; a socket.
package view

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// Mode is how a proxy gets its traffic.
type Mode uint8

// The interception modes of the node's metadata (INTERCEPTION_MODE).
const (
	Redirect Mode = iota
	TProxy
	None
)

// Node is what Navarch keeps of the node that a proxy sends: what is used, and nothing else (a stock Envoy sends 61 KB).
type Node struct {
	ID        string // as sent: names the proxy in logs and debug pages, decides nothing
	Router    bool   // a gateway: nothing is redirected to it, and Sidecars are not for it
	Name      string // of the pod
	Namespace string
	Domain    string // DNS suffix of services: svc.cluster.local
	Addresses []string
	Labels    map[string]string
	Workload  string // WORKLOAD_NAME, else the node's cluster
	Account   string // SERVICE_ACCOUNT
	// Verified is the namespace of the authenticated identity, for whoever has authenticated it to fill in; what the node
	// says of itself is no proof. Empty: nobody.
	Verified string
	Cluster  string
	Network  string
	Version  string // ISTIO_VERSION
	Mode     Mode
	Caps     xds.Caps
	// Metadata are the plain strings of the metadata, for the proxy match of EnvoyFilters
	// (https://istio.io/latest/docs/reference/config/networking/envoy-filter/: "only string key-value pairs").
	Metadata map[string]string
}

// DefaultDomain is assumed where the node's id names no DNS domain.
const DefaultDomain = "svc.cluster.local"

// longest is the length in bytes of the longest metadata value that is kept.
const longest = 256

// text lists the metadata keys that must be strings where they are there.
var text = []string{"NAME", "NAMESPACE", "WORKLOAD_NAME", "SERVICE_ACCOUNT", "INSTANCE_IPS", "CLUSTER_ID", "NETWORK",
	"ISTIO_VERSION", "NAVARCH_IDENTITY", "INTERCEPTION_MODE", "OWNER", "NODE_NAME", "MESH_ID", "ISTIO_REVISION"}

// Parse reads a node. The error names the field that is malformed and says what is expected there.
func Parse(node *corev3.Node) (Node, error) {
	n := Node{ID: node.GetId()}
	kind, ip, name, domain, err := parseID(node.GetId())
	if err != nil {
		return Node{}, err
	}
	if kind != "sidecar" && kind != "router" {
		return Node{}, fmt.Errorf("node.id %q: proxy type %q is not served; want sidecar or router", node.GetId(), kind)
	}
	n.Router = IsRouter(node.GetId())
	if err := n.metadata(node.GetMetadata()); err != nil {
		return Node{}, err
	}
	short, namespace, _ := strings.Cut(name, ".")
	n.Name = first(n.Metadata["NAME"], short)
	n.Namespace = first(n.Metadata["NAMESPACE"], namespace)
	if n.Name == "" {
		return Node{}, fmt.Errorf("node.id %q: no name; want name.namespace in its third part, or node.metadata.NAME", node.GetId())
	}
	if n.Namespace == "" {
		return Node{}, fmt.Errorf("node.id %q: no namespace; want name.namespace in its third part, or node.metadata.NAMESPACE", node.GetId())
	}
	if strings.ContainsAny(n.Namespace, "/\x00") {
		return Node{}, fmt.Errorf("node.metadata.NAMESPACE: %q is not the name of a namespace", n.Namespace)
	}
	n.Domain = first(strings.TrimPrefix(domain, n.Namespace+"."), DefaultDomain)
	n.Workload = first(n.Metadata["WORKLOAD_NAME"], node.GetCluster())
	n.Account, n.Cluster, n.Network = n.Metadata["SERVICE_ACCOUNT"], n.Metadata["CLUSTER_ID"], n.Metadata["NETWORK"]
	n.Version = n.Metadata["ISTIO_VERSION"]
	if n.Mode, err = parseMode(n.Metadata["INTERCEPTION_MODE"]); err != nil {
		return Node{}, err
	}
	if n.Addresses, err = parseAddresses(ip, n.Metadata["INSTANCE_IPS"]); err != nil {
		return Node{}, err
	}
	n.Caps = capsOf(node.GetExtensions())
	if hasIdentity(n.Metadata) {
		n.Caps |= xds.CapIdentity
	}
	return n, nil
}

// IsRouter says whether a node's id is a gateway's: a proxy that carries traffic of others.
func IsRouter(id string) bool { return strings.HasPrefix(id, "router~") }

// parseID takes apart type~ip~name.namespace~domain.
func parseID(id string) (kind, ip, name, domain string, err error) {
	parts := strings.Split(id, "~")
	if len(parts) != 4 {
		return "", "", "", "", fmt.Errorf("node.id %q: want type~ip~name.namespace~domain", id)
	}
	if parts[2] == "" {
		return "", "", "", "", fmt.Errorf("node.id %q: no name; want name.namespace in its third part", id)
	}
	if parts[1] != "" {
		if _, err := netip.ParseAddr(parts[1]); err != nil {
			return "", "", "", "", fmt.Errorf("node.id %q: second part %q: want an IP address", id, parts[1])
		}
	}
	return parts[0], parts[1], parts[2], parts[3], nil
}

func (n *Node) metadata(m *structpb.Struct) error {
	for _, key := range text {
		if v, ok := m.GetFields()[key]; ok && !isString(v) {
			return fmt.Errorf("node.metadata.%s: want a string, got %s", key, describe(v))
		}
	}
	n.Metadata = map[string]string{}
	for key, v := range m.GetFields() {
		if s, ok := v.GetKind().(*structpb.Value_StringValue); ok && len(s.StringValue) <= longest {
			n.Metadata[key] = s.StringValue
		}
	}
	labels, ok := m.GetFields()["LABELS"]
	if !ok || isNull(labels) {
		return nil
	}
	if labels.GetStructValue() == nil {
		return fmt.Errorf("node.metadata.LABELS: want an object of strings, got %s", describe(labels))
	}
	n.Labels = make(map[string]string, len(labels.GetStructValue().GetFields()))
	for key, v := range labels.GetStructValue().GetFields() {
		if !isString(v) {
			return fmt.Errorf("node.metadata.LABELS.%s: want a string, got %s", key, describe(v))
		}
		n.Labels[key] = v.GetStringValue()
	}
	return nil
}

func parseMode(s string) (Mode, error) {
	switch s {
	case "", "REDIRECT":
		return Redirect, nil
	case "TPROXY":
		return TProxy, nil
	case "NONE":
		return None, nil
	}
	return 0, fmt.Errorf("node.metadata.INTERCEPTION_MODE: %q; want REDIRECT, TPROXY or NONE", s)
}

func parseAddresses(ip, instanceIPs string) ([]string, error) {
	var all []string
	for _, s := range append([]string{ip}, strings.Split(instanceIPs, ",")...) {
		if s == "" {
			continue
		}
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("node.metadata.INSTANCE_IPS: %q; want IP addresses separated by commas", s)
		}
		if !slices.Contains(all, a.String()) {
			all = append(all, a.String())
		}
	}
	return all, nil
}

func capsOf(extensions []*corev3.Extension) xds.Caps {
	if len(extensions) == 0 {
		return xds.StockCaps
	}
	var caps xds.Caps
	for _, e := range extensions {
		caps |= xds.CapOf(e.GetName())
	}
	return caps
}

// hasIdentity says whether a proxy gets certificates by SDS: its agent says so (NAVARCH_IDENTITY), or it is Istio's.
func hasIdentity(metadata map[string]string) bool {
	if stated, ok := metadata["NAVARCH_IDENTITY"]; ok {
		return stated == "sds"
	}
	return metadata["ISTIO_VERSION"] != ""
}

func isNull(v *structpb.Value) bool {
	_, ok := v.GetKind().(*structpb.Value_NullValue)
	return ok || v.GetKind() == nil
}

func isString(v *structpb.Value) bool {
	_, ok := v.GetKind().(*structpb.Value_StringValue)
	return ok || isNull(v)
}

func describe(v *structpb.Value) string {
	switch v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		return "a number"
	case *structpb.Value_BoolValue:
		return "a boolean"
	case *structpb.Value_StructValue:
		return "an object"
	case *structpb.Value_ListValue:
		return "a list"
	case *structpb.Value_StringValue:
		return "a string"
	}
	return "nothing"
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
