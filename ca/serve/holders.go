package serve

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/ca/attest"
)

// HoldersMethod is the full gRPC name of the method by which navarch-agent reports its root bundle. The agent calls it
// over mTLS with its certificate, after its Envoy has acknowledged the bundle. Istio's own agents never call it. The
// request is a google.protobuf.ListValue of 1 to 256 elements: the Fingerprint of each root, in any order. The response
// is a google.protobuf.Empty.
const HoldersMethod = "/navarch.ca.v1.Holders/Report"

const maxRoots = 256 // in one report

// Fingerprint returns the SHA-256 digest of a root's DER in lower-case hexadecimal.
func Fingerprint(root *x509.Certificate) string {
	sum := sha256.Sum256(root.Raw)
	return hex.EncodeToString(sum[:])
}

var holdersDesc = grpc.ServiceDesc{
	ServiceName: "navarch.ca.v1.Holders",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{call("Report", func(s *Server, ctx context.Context, read func(any) error) (any, error) {
		empty, caller, err := s.report(ctx, read)
		if err != nil {
			s.refused(ctx, "report of held roots refused", caller, err)
		}
		return empty, err
	})},
}

// report stores an agent's report. It does not verify that the agent has the reported roots. The agent must
// authenticate by a certificate, since the report is about this certificate.
func (s *Server) report(ctx context.Context, read func(any) error) (empty *emptypb.Empty, caller attest.Caller, err error) {
	if s.cfg.Holders == nil {
		return nil, caller, status.Error(codes.Unimplemented, "this server accepts no reports of root bundles")
	}
	if caller, err = s.caller(ctx); err != nil {
		return nil, caller, err
	}
	cert := peerCertificate(ctx)
	if caller.By != attest.ByCertificate || cert == nil {
		return nil, caller, status.Error(codes.PermissionDenied,
			"report over mTLS with the certificate in use: a token does not identify the certificate of the report")
	}
	list := &structpb.ListValue{}
	if err := read(list); err != nil {
		return nil, caller, err
	}
	roots, err := fingerprints(list)
	if err != nil {
		return nil, caller, status.Error(codes.InvalidArgument, err.Error())
	}
	h := Holder{Identity: caller.ID, Credential: caller.Credential(),
		Serial: Serial(cert), Roots: roots, Peer: peerAddress(ctx), NotAfter: cert.NotAfter}
	if err := s.cfg.Holders.Held(ctx, h); err != nil {
		return nil, caller, status.Errorf(codes.Unavailable, "the report could not be recorded: %v", err)
	}
	s.cfg.Hooks.HolderReported()
	return &emptypb.Empty{}, caller, nil
}

func fingerprints(list *structpb.ListValue) ([]string, error) {
	if n := len(list.GetValues()); n == 0 || n > maxRoots {
		return nil, fmt.Errorf("a report names %d roots, must be 1 to %d", n, maxRoots)
	}
	var out []string
	for i, v := range list.GetValues() {
		b, err := hex.DecodeString(v.GetStringValue())
		if err != nil || len(b) != sha256.Size {
			return nil, fmt.Errorf("values[%d]: a fingerprint is 64 hexadecimal digits", i)
		}
		out = append(out, hex.EncodeToString(b)) // in lower case, as Fingerprint returns it
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
