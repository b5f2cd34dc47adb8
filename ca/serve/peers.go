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

// PeersMethod is called by a replica of its peers: a google.protobuf.BytesValue with a nonce, answered by one with what the
// peer remembers of the keyring, sealed for that nonce. It takes no credential: nothing in it is secret, and only who has
// the key encryption key can make an answer. A certificate would not do: a replica that was handed a keyring that was
// turned back has the roots of then, and neither side could verify the other in the one case that matters.
const PeersMethod = "/navarch.ca.v1.Peers/Seen"

// Bounds of the exchange.
const (
	minNonce, maxNonce = 16, 64 // bytes
	maxPeers           = 64     // asked at once
	peerTimeout        = 3 * time.Second
	maxAnswer          = 64 << 10 // bytes
)

// Memory is what this replica remembers of the keyring, sealed for a nonce (keyring.Seen).
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

// seen answers one peer at a time: it takes no credential, and an unknown caller must not take the processors from those that showed one.
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
		return nil, status.Errorf(codes.Unavailable, "what is remembered cannot be sealed now: %v", err)
	}
	return wrapperspb.Bytes(answer), nil
}

// AskPeers asks every address of addresses (host:port; of a name all its addresses, so that the name of a headless Service
// is enough) and returns the answers, unopened, and with them the errors of those that gave none: together within 3 s. It
// is what keyring.Config.Peers wants, once addresses are bound. The process's own address may be among them.
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

func resolve(ctx context.Context, addresses []string) (targets []string, errs []error) {
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			errs = append(errs, fmt.Errorf("peer %q: want host:port", address))
			continue
		}
		hosts, err := net.DefaultResolver.LookupHost(ctx, host) // an address is its own answer
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
		errs = append(errs, fmt.Errorf("%d peers, %d are asked", n, maxPeers))
		targets = targets[:maxPeers]
	}
	return targets, errs
}

func askPeer(ctx context.Context, target string, nonce []byte) ([]byte, error) {
	// The answer proves itself: see PeersMethod.
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
