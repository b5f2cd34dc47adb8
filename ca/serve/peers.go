package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// PeersMethod is the full gRPC name of the method by which a peer (another replica) returns the keyring record that it
// remembers. The keyring record is the CA's state in etcd. With a peer's record, a replica detects that etcd was rolled
// back. The request is a google.protobuf.BytesValue with a nonce of 16 to 64 bytes. The response is a BytesValue with
// the result of Memory.Seen.
//
// The method needs no credential, because the content is not secret, and only a holder of the key encryption key can
// make a response. Client certificates would fail when the method is needed most: a replica with a rolled-back keyring
// has old roots, so neither side could verify the other.
const PeersMethod = "/navarch.ca.v1.Peers/Seen"

// Limits of a request to peers.
const (
	minNonce, maxNonce = 16, 64 // bytes
	maxPeers           = 64     // pairs of IP address and port that are called
	peerTimeout        = 3 * time.Second
	maxAnswer          = 64 << 10 // bytes
)

// Memory provides the keyring record that this process remembers (keyring.Keyring.Seen). Seen returns an encrypted
// message with the record's version and digests, and this process's time. The nonce (16 to 64 bytes) is associated data
// of the encryption. The Server makes one call at a time. Peers receive an error as Unavailable.
type Memory interface {
	Seen(ctx context.Context, nonce []byte) ([]byte, error)
}

var peersDesc = grpc.ServiceDesc{
	ServiceName: "navarch.ca.v1.Peers",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Seen", Handler: handleSeen}},
}

func handleSeen(srv any, ctx context.Context, decode func(any) error, ic grpc.UnaryServerInterceptor) (any, error) {
	in := &wrapperspb.BytesValue{}
	if err := decode(in); err != nil {
		return nil, err
	}
	handle := func(ctx context.Context, in any) (any, error) {
		return srv.(*Server).seen(ctx, in.(*wrapperspb.BytesValue))
	}
	if ic == nil {
		return handle(ctx, in)
	}
	return ic(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: PeersMethod}, handle)
}

// seen answers one peer at a time, so that unauthenticated callers cannot occupy all processors.
func (s *Server) seen(ctx context.Context, nonce *wrapperspb.BytesValue) (*wrapperspb.BytesValue, error) {
	if s.cfg.Memory == nil {
		return nil, status.Error(codes.Unimplemented, "this server does not answer peers")
	}
	if n := len(nonce.GetValue()); n < minNonce || n > maxNonce {
		return nil, status.Errorf(codes.InvalidArgument, "a nonce of %d bytes, must be %d to %d", n, minNonce, maxNonce)
	}
	if err := s.peers.Acquire(ctx, 1); err != nil {
		return nil, contextual(err)
	}
	defer s.peers.Release(1)
	answer, err := s.cfg.Memory.Seen(ctx, nonce.GetValue())
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "the remembered keyring record cannot be sealed now: %v", err)
	}
	return wrapperspb.Bytes(answer), nil
}

// AskPeers calls PeersMethod at all addresses (host:port) at once, and returns the encrypted responses in any order. It
// does not verify the responses. A host name stands for all its IP addresses (as with a headless Service). The list may
// contain the process's own address. If there are more than 64 different pairs of IP address and port, only the first
// 64 in sorted order are called. Without addresses both results are nil.
//
// AskPeers returns after about 3 s at the latest. The error joins the errors of addresses that are not valid or do not
// resolve, and of peers that did not answer or refused. It also joins an error if there are more than 64 pairs of IP
// address and port. The other peers' responses are returned together with the error.
func AskPeers(ctx context.Context, addresses []string, nonce []byte) ([][]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	targets, errs := resolve(ctx, addresses)
	var mu sync.Mutex
	var answers [][]byte
	var asking sync.WaitGroup
	for _, target := range targets {
		asking.Go(func() {
			answer, err := askPeer(ctx, target, nonce)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("peer %s: %w", target, err))
				return
			}
			answers = append(answers, answer)
		})
	}
	asking.Wait()
	return answers, errors.Join(errs...)
}

// resolve returns pairs IP:port for the addresses (host:port), sorted and without duplicates, at most maxPeers.
func resolve(ctx context.Context, addresses []string) (targets []string, errs []error) {
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("peer %q: want host:port", address))
			continue
		}
		hosts, err := net.DefaultResolver.LookupHost(ctx, host) // an IP address resolves to itself
		if err != nil {
			errs = append(errs, fmt.Errorf("peer %s: %w", address, err))
		}
		for _, h := range hosts {
			targets = append(targets, net.JoinHostPort(h, port))
		}
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	if n := len(targets); n > maxPeers {
		errs = append(errs, fmt.Errorf("%d pairs of IP address and port, only %d are queried", n, maxPeers))
		targets = targets[:maxPeers]
	}
	return targets, errs
}

func askPeer(ctx context.Context, target string, nonce []byte) ([]byte, error) {
	// The answer needs no authenticated connection: see PeersMethod.
	creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(creds), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer := &wrapperspb.BytesValue{}
	if err := conn.Invoke(ctx, PeersMethod, wrapperspb.Bytes(nonce), answer); err != nil {
		return nil, err
	}
	return answer.GetValue(), nil
}
