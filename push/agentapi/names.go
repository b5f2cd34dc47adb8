package agentapi

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// NameTableURL is the type URL of the mesh's host names. Agents, including Istio's, request the names to answer DNS
// queries. The type has one resource, with an empty name (istio: pkg/dns/proto/nds.proto, pilot/pkg/xds/nds.go).
const NameTableURL = "type.googleapis.com/istio.networking.nds.v1.NameTable"

// RegistryKubernetes is the Name.Registry of Kubernetes Services and their Pods. Agents also resolve the short names of
// these hosts. Hosts of other registries have no short name.
const RegistryKubernetes = "Kubernetes"

// Name holds the DNS records of one host. The Shortname of a Pod with the host name db-0 is "db-0.db" for the headless
// Service db. The comments below state the form that navarchd sends.
type Name struct {
	Host      string       // in lower case, without a trailing dot; may begin with "*."
	Addresses []netip.Addr // at least one
	Registry  string       // RegistryKubernetes, or another registry name of istiod
	Shortname string       // name of the Service, or HOSTNAME.SERVICE for a Pod; empty for other registries
	Namespace string       // namespace of the Service; empty for other registries
}

// These are the field numbers of NameTable and NameInfo.
const (
	tableEntries = 1
	entryHost    = 1
	entryInfo    = 2
	infoIPs      = 1
	infoRegistry = 2
	infoShort    = 3
	infoSpace    = 4
)

// AppendName appends the encoding of a name to b, and returns the result. An encoded table is the concatenation of
// encoded names. The name is not validated, and its empty fields are left out.
func AppendName(b []byte, n Name) []byte {
	var info []byte
	for _, a := range n.Addresses {
		info = appendText(info, infoIPs, a.String())
	}
	info = appendText(info, infoRegistry, n.Registry)
	info = appendText(info, infoShort, n.Shortname)
	info = appendText(info, infoSpace, n.Namespace)
	entry := appendText(nil, entryHost, n.Host)
	entry = protowire.AppendTag(entry, entryInfo, protowire.BytesType)
	entry = protowire.AppendBytes(entry, info)
	b = protowire.AppendTag(b, tableEntries, protowire.BytesType)
	return protowire.AppendBytes(b, entry)
}

// appendText appends a string field, unless it is empty.
func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), text)
}

// DecodeNames decodes the body of a name table, in the table's order. Host, Shortname and Namespace are lower-cased,
// and Host loses one trailing dot. IPv4-mapped IPv6 addresses become IPv4 addresses. DecodeNames leaves out invalid
// addresses, and names without a host or without any valid address. The result is nil if no name remains. Unknown
// fields are ignored. DecodeNames fails if the body is nil, has another type, or does not decode.
func DecodeNames(body *anypb.Any) (names []Name, err error) {
	if body.GetTypeUrl() != NameTableURL {
		return nil, fmt.Errorf("name table: the type is %.200q, want %s", body.GetTypeUrl(), NameTableURL)
	}
	err = fields(body.GetValue(), func(number protowire.Number, value []byte) error {
		if number != tableEntries {
			return nil
		}
		n := Name{}
		if err := fields(value, n.decodeEntry); err != nil {
			return err
		}
		if n.Host != "" && len(n.Addresses) > 0 {
			names = append(names, n)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("name table: %w", err)
	}
	return names, nil
}

// decodeEntry decodes one field of an entry: the host, or the information about the host.
func (n *Name) decodeEntry(number protowire.Number, value []byte) error {
	switch number {
	case entryHost:
		n.Host = strings.TrimSuffix(strings.ToLower(string(value)), ".")
	case entryInfo:
		return fields(value, n.decodeInfo)
	}
	return nil
}

// decodeInfo decodes one field of NameInfo. It ignores invalid addresses.
func (n *Name) decodeInfo(number protowire.Number, value []byte) error {
	switch number {
	case infoIPs:
		if a, err := netip.ParseAddr(string(value)); err == nil {
			n.Addresses = append(n.Addresses, a.Unmap())
		}
	case infoRegistry:
		n.Registry = string(value)
	case infoShort:
		n.Shortname = strings.ToLower(string(value))
	case infoSpace:
		n.Namespace = strings.ToLower(string(value))
	}
	return nil
}

// fields calls f with each length-delimited field of a message, and skips other fields. It fails if f fails, or if the
// message does not decode.
func fields(b []byte, f func(number protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if b = b[n:]; kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
				return errors.New("a field is incomplete")
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		if err := f(number, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
