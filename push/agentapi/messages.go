package agentapi

import (
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// The types that agents ask for, and the name of the one resource of each.
const (
	OwnerURL  = "navarch.io/owner"
	OwnerName = "owner"

	TrustURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext"
	TrustName = "ROOTCA"
)

// Owner says which replica a proxy belongs to.
type Owner struct {
	Address string // host:port; empty: the agent stays where it is
	Self    bool   // the replica that answers is the owner
}

const (
	ownerAddress = "address"
	ownerSelf    = "self"
)

// Encode is the body of the resource.
func (o Owner) Encode() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		ownerAddress: structpb.NewStringValue(o.Address), ownerSelf: structpb.NewBoolValue(o.Self),
	}}
}

// DecodeOwner reads the body of the resource. An error is another message than a Struct, or an address that is not host:port.
func DecodeOwner(body *anypb.Any) (Owner, error) {
	var fields structpb.Struct
	if err := body.UnmarshalTo(&fields); err != nil {
		return Owner{}, fmt.Errorf("owner: %w", err)
	}
	o := Owner{Address: fields.Fields[ownerAddress].GetStringValue(), Self: fields.Fields[ownerSelf].GetBoolValue()}
	if o.Address == "" {
		return o, nil
	}
	if host, port, err := net.SplitHostPort(o.Address); err != nil || host == "" || port == "" {
		return Owner{}, fmt.Errorf("owner: address %q: want host:port", o.Address)
	}
	return o, nil
}

// Trust is what the certificates of the mesh are verified against. Roots and lists travel together, so that an agent never has a root
// without the revocation lists that there are of its certificates.
type Trust struct {
	Roots []byte // certificates, PEM
	Lists []byte // certificate revocation lists of leaves, PEM; empty: none
}

// Encode is the body of the resource.
func (t Trust) Encode() *tlsv3.CertificateValidationContext {
	m := &tlsv3.CertificateValidationContext{TrustedCa: inline(t.Roots)}
	if len(t.Lists) > 0 {
		// Lists are for leaves alone: nobody makes one for the issuers of intermediates.
		m.Crl, m.OnlyVerifyLeafCertCrl = inline(t.Lists), true
	}
	return m
}

func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// DecodeTrust reads the body of the resource. An error is another message than a CertificateValidationContext. Whether roots and lists
// are certificates and lists is for the caller to see.
func DecodeTrust(body *anypb.Any) (Trust, error) {
	var m tlsv3.CertificateValidationContext
	if err := body.UnmarshalTo(&m); err != nil {
		return Trust{}, fmt.Errorf("trust: %w", err)
	}
	return Trust{Roots: m.GetTrustedCa().GetInlineBytes(), Lists: m.GetCrl().GetInlineBytes()}, nil
}
