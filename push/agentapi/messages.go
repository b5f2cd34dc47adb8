package agentapi

import (
	"fmt"
	"net"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// OwnerURL and TrustURL are the type URLs of two resources that agents request. OwnerName and TrustName are the names
// of these resources. The body of OwnerURL is a google.protobuf.Struct.
const (
	OwnerURL  = "navarch.io/owner"
	OwnerName = "owner"

	TrustURL  = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext"
	TrustName = "ROOTCA"
)

// Owner names the replica to which a proxy belongs.
type Owner struct {
	Address string // host:port of the owner; empty: the agent keeps its connection
	Self    bool   // the replica that sends the message is the owner
}

// These are the field names of Owner's Struct.
const (
	ownerAddress = "address"
	ownerSelf    = "self"
)

// Encode encodes the body of the resource. It does not validate the address.
func (o Owner) Encode() *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{
		ownerAddress: structpb.NewStringValue(o.Address), ownerSelf: structpb.NewBoolValue(o.Self),
	}}
}

// DecodeOwner decodes the body of the resource; absent fields are zero. It fails if the body is nil or not a valid
// Struct, or if the address is neither empty nor host:port. The port may be any text that is not empty.
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

// Trust holds the roots and revocation lists with which certificates of the mesh are verified. Both are sent together,
// so an agent never has a root without the existing revocation lists of the root's certificates.
type Trust struct {
	Roots []byte // certificates, PEM
	Lists []byte // certificate revocation lists of leaf certificates, PEM; empty: no lists
}

// Encode encodes the body of the resource. The result refers to the bytes of t.
func (t Trust) Encode() *tlsv3.CertificateValidationContext {
	m := &tlsv3.CertificateValidationContext{TrustedCa: inline(t.Roots)}
	if len(t.Lists) > 0 {
		// The CA issues lists only for leaf certificates, not for intermediate certificates.
		m.Crl, m.OnlyVerifyLeafCertCrl = inline(t.Lists), true
	}
	return m
}

// inline returns a data source with these bytes.
func inline(b []byte) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
}

// DecodeTrust decodes the body of the resource; absent parts are nil. It fails if the body is nil or not a valid
// CertificateValidationContext. It does not validate the roots and lists.
func DecodeTrust(body *anypb.Any) (Trust, error) {
	var m tlsv3.CertificateValidationContext
	if err := body.UnmarshalTo(&m); err != nil {
		return Trust{}, fmt.Errorf("trust: %w", err)
	}
	return Trust{Roots: m.GetTrustedCa().GetInlineBytes(), Lists: m.GetCrl().GetInlineBytes()}, nil
}
