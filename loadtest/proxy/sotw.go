package proxy

import (
	"cmp"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"navarch.io/navarch/push/xds"
)

// The protocol's older form, state of the world: every request names all that is subscribed to, every response of clusters
// or listeners is all of them, and what is missing in it is gone. Assignments and routes may come one by one, and are never
// removed. Resources have no versions of their own: the sum of the body stands for it.

// Field numbers of envoy.service.discovery.v3.DiscoveryRequest that differ from those of the delta form; resource_names is
// the 3 that resource_names_subscribe is there. A DiscoveryResponse has version_info where system_version_info is, and
// google.protobuf.Any in place of Resource (discovery.proto).
const sotwVersion, sotwNode, sotwType, sotwNonce, sotwError = 1, 2, 4, 5, 6

// encodeSotW gives the request as a gRPC message of that form: `more` are the names. nonce is that of the newest response,
// where the request does not answer another.
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

// appendStatus is a google.rpc.Status with Envoy's code, which is always INTERNAL.
func appendStatus(b []byte, number protowire.Number, message string) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(protowire.SizeTag(1)+protowire.SizeVarint(13)+sizeText(2, message)))
	b = protowire.AppendTag(b, 1, protowire.VarintType)
	return appendText(protowire.AppendVarint(b, 13), 2, message)
}

// parseAny reads an Any whose message says its name in field 1, as those of all our types do.
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

// resumeSotW asks for everything again: no claim keeps a server from sending it.
func (s *sim) resumeSotW(node []byte) {
	for _, t := range s.used {
		s.waiting[t] = append(bitset(nil), s.subs[t]...)
		s.ask(t, request{node: node}, nil)
		node = nil
	}
}

// omitted are the clusters or listeners that a response no longer has.
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
