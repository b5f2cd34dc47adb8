package attack

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/push/xds"
)

// Attacks with the credential of one workload.

// connected calls speak with a gRPC connection that presents the certificate, and returns its result.
func (w *attacker) connected(ctx context.Context, speak func(*grpc.ClientConn) string) string {
	conn, err := w.client(ctx, w.Certificate)
	if err != nil {
		return noConnection
	}
	defer conn.Close()
	return speak(conn)
}

// alone opens a connection with one stream.
func (w *attacker) alone(ctx context.Context, first bool, speak func(line) error) string {
	return w.connected(ctx, func(conn *grpc.ClientConn) string { return w.stream(ctx, conn, first, speak) })
}

// perMessage is the number of names or versions, of 45 bytes each, in a message of almost 4 MiB.
const perMessage = 45_000

// names subscribes to Config.Names clusters that do not exist.
func names(ctx context.Context, w *attacker) string { return w.subscribe(ctx, xds.Endpoint, w.cluster) }

// secrets subscribes to names of Secrets that could exist in its namespace.
func secrets(ctx context.Context, w *attacker) string {
	return w.subscribe(ctx, xds.Secret, func(i int) string { return "kubernetes://" + w.invented(i) })
}

// subscribe subscribes to Config.Names names of one type.
func (w *attacker) subscribe(ctx context.Context, to xds.Type, name func(int) string) string {
	return w.alone(ctx, false, func(l line) error {
		for from := 0; from < w.Names; from += perMessage {
			r := &request{TypeUrl: to.URL()}
			if from == 0 {
				r.Node = w.node(w.invented(0)).message()
			}
			for i := from; i < min(from+perMessage, w.Names); i++ {
				r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name(i))
			}
			if err := l.send(r); err != nil {
				return err
			}
		}
		return nil
	})
}

// cluster returns the name of a cluster that does not exist.
func (w *attacker) cluster(i int) string {
	return fmt.Sprintf("outbound|80||n%d-%d-%d.nowhere.svc.cluster.local", i, w.index, w.tries)
}

// perConnection is the number of streams on one connection in the attack nodes.
const perConnection = 90

// nodes opens many streams, each as another proxy of the identity with unique labels. Each stream counts as a try.
func nodes(ctx context.Context, w *attacker) string {
	return w.connected(ctx, func(conn *grpc.ClientConn) string {
		var all sync.WaitGroup
		for i := range max(2, perConnection*w.Connections/MaxConnections) - 1 {
			n := w.node(w.invented(i + 1))
			all.Go(func() {
				w.count(func(c *Count) { c.Tried++ })
				came := w.stream(ctx, conn, false, everything(n))
				w.count(func(c *Count) { c.Came[came]++ })
			})
		}
		defer all.Wait()
		return w.stream(ctx, conn, false, everything(w.node(w.invented(0))))
	})
}

// everything returns a function that subscribes as a proxy does at its start and acknowledges all responses, so that
// the stream looks like a real proxy's.
func everything(n *node) func(line) error {
	m := n.message()
	return func(l line) error {
		for _, t := range []xds.Type{xds.Cluster, xds.Listener} {
			if err := l.send(&request{Node: m, TypeUrl: t.URL()}); err != nil {
				return err
			}
		}
		for {
			select {
			case a := <-l.heard:
				if err := l.send(&request{TypeUrl: a.typeURL, ResponseNonce: a.nonce}); err != nil {
					return err
				}
			case <-l.ctx.Done():
				return nil
			}
		}
	}
}

// largeNode sends a node whose metadata and labels fill a message of 4 MiB.
func largeNode(ctx context.Context, w *attacker) string {
	n := w.node(w.invented(0))
	n.metadata = map[string]string{}
	long := strings.Repeat("x", 300)
	for i := range max(10, 8000*w.Connections/MaxConnections) {
		n.metadata[fmt.Sprintf("KEY_%d", i)] = long
		n.labels[fmt.Sprintf("label-%d.example.com/%s", i, w.attack.Name)] = w.invented(i)
	}
	return w.as(ctx, n, false)
}

// as opens a stream with a node. With first it ends after the first response.
func (w *attacker) as(ctx context.Context, n *node, first bool) string {
	return w.alone(ctx, first, func(l line) error {
		return l.send(&request{Node: n.message(), TypeUrl: xds.Cluster.URL()})
	})
}

// nacks rejects every response and requests it again.
func nacks(ctx context.Context, w *attacker) string {
	types := []xds.Type{xds.Cluster, xds.Listener, xds.Endpoint, xds.Route}
	return w.alone(ctx, false, func(l line) error {
		if err := l.send(&request{Node: w.node(w.invented(0)).message(), TypeUrl: xds.Cluster.URL()}); err != nil {
			return err
		}
		refused := answer{nonce: "never sent"}
		for i := 0; w.pause(l.ctx); i++ {
			select {
			case refused = <-l.heard:
			default: // subscribe again
			}
			of := cmp.Or(refused.typeURL, types[i%len(types)].URL())
			refusal := &status.Status{Code: int32(codes.InvalidArgument), Message: fmt.Sprintf("refused %d: %s", i, strings.Repeat("no ", 1000))}
			err := l.send(&request{TypeUrl: of, ResponseNonce: refused.nonce, ErrorDetail: refusal, ResourceNamesSubscribe: []string{w.cluster(i)}})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// versions claims to hold many resources in invented versions.
func versions(ctx context.Context, w *attacker) string {
	return w.alone(ctx, false, func(l line) error {
		n := w.node(w.invented(0)).message()
		for _, t := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Listener, xds.Route} {
			r := &request{Node: n, TypeUrl: t.URL(), InitialResourceVersions: map[string]string{}}
			for i := range min(w.Names, perMessage/2) {
				r.InitialResourceVersions[w.cluster(i)] = fmt.Sprintf("%032x", i)
			}
			if n = nil; l.send(r) != nil {
				return nil
			}
		}
		return nil
	})
}

const certificateMethod = "/istio.v1.auth.IstioCertificateService/CreateCertificate"

// csrs requests certificates, with only the attack's own pause between them, alternately by the token and by the
// certificate.
func csrs(ctx context.Context, w *attacker) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err.Error()
	}
	speak := func(conn *grpc.ClientConn) string {
		for {
			csr, err := csrOf(key)
			if err != nil {
				return err.Error()
			}
			w.count(func(c *Count) { c.Requests++ })
			if err := conn.Invoke(w.bearer(ctx), certificateMethod, csr, &answer{}); err != nil {
				return came(ctx, err)
			}
			w.count(func(c *Count) { c.Answers++ })
			if !w.pause(ctx) {
				return kept
			}
		}
	}
	if w.tries%2 == 0 {
		return w.connected(ctx, speak)
	}
	conn, err := w.client(ctx, nil)
	if err != nil {
		return noConnection
	}
	defer conn.Close()
	return speak(conn)
}

func csrOf(key *ecdsa.PrivateKey) (*securityv1.IstioCertificateRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	return &securityv1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))}, err
}

// mints obtains a certificate by the token, and with it opens a stream as an unknown proxy of the identity.
func mints(ctx context.Context, w *attacker) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err.Error()
	}
	csr, err := csrOf(key)
	if err != nil {
		return err.Error()
	}
	conn, err := w.client(ctx, nil)
	if err != nil {
		return noConnection
	}
	w.count(func(c *Count) { c.Requests++ })
	minted := &securityv1.IstioCertificateResponse{}
	err = conn.Invoke(w.bearer(ctx), certificateMethod, csr, minted)
	_ = conn.Close() // one connection at a time
	if err != nil {
		return came(ctx, err)
	}
	w.count(func(c *Count) { c.Answers++ })
	leaf := tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode([]byte(strings.Join(minted.GetCertChain(), ""))); block != nil; block, rest = pem.Decode(rest) {
		leaf.Certificate = append(leaf.Certificate, block.Bytes)
	}
	if conn, err = w.client(ctx, &leaf); err != nil {
		return noConnection
	}
	defer conn.Close()
	return w.stream(ctx, conn, false, everything(w.node(w.invented(0))))
}

func (w *attacker) bearer(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+w.Token)
}

// reconnects opens a connection and a stream, and closes both at the first response.
func reconnects(ctx context.Context, w *attacker) string {
	return w.as(ctx, w.node(w.invented(0)), true)
}

// impersonate poses as a proxy of another identity. An answer would be a success of the attack.
func impersonate(ctx context.Context, w *attacker) string {
	parts := strings.Split(w.Victim, "/")
	return w.as(ctx, &node{namespace: parts[0], account: parts[1], name: parts[2]}, true)
}

// asked are resource types of tools, each with a name, and one type that does not exist.
var asked = [][2]string{{"istio.io/debug", "push_status"}, {"istio.io/debug", "explain"},
	{"istio.io/debug/syncz", ""}, {"istio.io/debug", "pprof/heap"},
	{"istio.io/debug/config_dump", ""}, {"type.googleapis.com/nothing.Known", "x"}}

// questions sends requests of tools, about other proxies where possible.
func questions(ctx context.Context, w *attacker) string {
	parts := strings.Split(w.Victim, "/")
	return w.alone(ctx, true, func(l line) error {
		q := asked[w.tries%len(asked)]
		if q[1] == "" {
			q[1] = parts[2] + "." + parts[0]
		}
		return l.send(&request{Node: w.node(w.invented(0)).message(), TypeUrl: q[0], ResourceNamesSubscribe: []string{q[1]}})
	})
}
