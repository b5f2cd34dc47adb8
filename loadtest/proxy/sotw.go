package proxy

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
)

// State of the world is the older form of the protocol. Every request lists all subscribed names. Every response with
// clusters or listeners contains all of them, and an absent one is removed. Assignments and routes may arrive one by
// one, and are never removed. Resources have no versions of their own: a hash of the body replaces the version.

// Field numbers of envoy.service.discovery.v3.DiscoveryRequest that differ from those of the delta form. resource_names
// has number 3, which is resource_names_subscribe in the delta form. A DiscoveryResponse has version_info in the place
// of system_version_info, and google.protobuf.Any in the place of Resource (discovery.proto).
const sotwVersion, sotwNode, sotwType, sotwNonce, sotwError = 1, 2, 4, 5, 6

// encodeSotW returns the request as a gRPC message of that form; `more` are the encoded names. nonce is that of the
// newest response, unless the request answers another one.
func (r request) encodeSotW(version, nonce string) []byte {
	b := make([]byte, 5, 5+len(r.node)+len(r.url)+len(version)+len(nonce)+32)
	if version != "" {
		b = appendText(b, sotwVersion, version)
	}
	if r.node != nil {
		b = appendNode(b, r.node, sotwNode)
	}
	b = appendText(b, sotwType, r.url)
	if nonce = cmp.Or(r.nonce, nonce); nonce != "" {
		b = appendText(b, sotwNonce, nonce)
	}
	if r.refusal != "" {
		b = appendStatus(b, sotwError, r.refusal)
	}
	return prefix(b, r.more...)
}

// appendStatus appends a google.rpc.Status with Envoy's code, which is always INTERNAL.
func appendStatus(b []byte, number protowire.Number, message string) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(1)+protowire.SizeVarint(13)+sizeText(2, message)))
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	return appendText(protowire.AppendVarint(b, 13), 2, message)
}

// parseAny parses an Any whose message has its name in field 1, as all our types do.
func parseAny(b []byte) (resource, error) {
	var r resource
	if err := each(b, r.any); err != nil {
		return r, fmt.Errorf("resource: %w", err)
	}
	for rest := r.body; len(rest) > 0 && r.name == ""; {
		number, kind, value, n, err := field(rest)
		if err != nil || n == 0 || n > len(rest) {
			return r, fmt.Errorf("resource of type %q: it cannot be read (%v)", r.url, err)
		}
		if number == 1 && kind == protowire.BytesType {
			r.name = borrow(value)
		}
		rest = rest[n:]
	}
	return r, nil
}

// resumeSotW requests everything again: this form has no claims.
func (s *sim) resumeSotW(node []byte) {
	for _, t := range s.used {
		s.waiting[t] = append(bitset(nil), s.subs[t]...)
		s.ask(t, request{node: node}, nil)
		node = nil
	}
}

// omitted returns the clusters or listeners that a response no longer contains.
func (s *sim) omitted(t xds.Type, m *response) {
	if !t.Wildcard() {
		return
	}
	for index := range s.held[t].all() {
		if !m.listed.has(index) {
			m.removed = append(m.removed, s.fleet.names.at(t, index).name)
		}
	}
}
