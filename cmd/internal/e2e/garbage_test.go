package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// bytesCodec sends and receives raw bytes.
type bytesCodec struct{}

func (bytesCodec) Name() string                      { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)     { return v.([]byte), nil }
func (bytesCodec) Unmarshal(raw []byte, v any) error { *v.(*[]byte) = bytes.Clone(raw); return nil }

const (
	deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	worldMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
)

// say sends raw messages on a stream and returns the first response, or the error that ended the stream.
func say(t *testing.T, address, method string, messages ...[]byte) ([]byte, error) {
	t.Helper()
	return sayAs(t, insecure.NewCredentials(), address, method, messages...)
}

func sayAs(t *testing.T, creds credentials.TransportCredentials, address, method string, messages ...[]byte) ([]byte, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	desc := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	stream, err := conn.NewStream(t.Context(), desc, method, grpc.ForceCodec(bytesCodec{}))
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		if err := stream.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // EOF: RecvMsg says why
			return nil, err
		}
	}
	var answer []byte
	err = stream.RecvMsg(&answer)
	return answer, err
}

func encode(t *testing.T, m proto.Message) []byte {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func request(t *testing.T, n *corev3.Node, typeURL string) []byte {
	return encode(t, &discoveryv3.DeltaDiscoveryRequest{Node: n, TypeUrl: typeURL})
}

// withMeta returns a valid node with one metadata field replaced.
func withMeta(key string, v any) *corev3.Node {
	n := node("shop", "client", "10.1.9.9")
	value, err := structpb.NewValue(v)
	if err != nil {
		panic(err)
	}
	n.Metadata.Fields[key] = value
	return n
}

// Garbage on any port gets a clear answer there, and affects no other client.
func TestGarbage(t *testing.T) {
	parallel(t)
	d := start(t, "--config-dir", folder(t), "--data-dir", t.TempDir())
	eventually(t, patience, d.ready)
	t.Run("bytes", func(t *testing.T) { garbageBytes(t, d) })
	t.Run("requests", func(t *testing.T) { garbageRequests(t, d) })
	t.Run("state of the world", func(t *testing.T) { garbageSotW(t, d) })
	t.Run("unknown type", func(t *testing.T) {
		// Types that are not ours get no answer (agents ask for NDS and others), and the stream goes on.
		n := node("shop", "client", "10.1.9.9")
		answer, err := say(t, d.grpc, deltaMethod, request(t, n, "type.googleapis.com/no.such.Type"), request(t, nil, xds.Cluster.URL()))
		var res discoveryv3.DeltaDiscoveryResponse
		if err != nil || proto.Unmarshal(answer, &res) != nil || res.TypeUrl != xds.Cluster.URL() || len(res.Resources) == 0 {
			t.Errorf("after a type that is not served: %v, %d resources of %q", err, len(res.Resources), res.TypeUrl)
		}
	})
	if err := serves(t, d, 1)(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if err := d.ready(); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if log := d.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
		t.Error("something panicked")
	}
}

func garbageBytes(t *testing.T, d *daemon) {
	random := rand.NewChaCha8([32]byte{1})
	noise := make([]byte, 64<<10)
	_, _ = random.Read(noise)
	shapes := map[string][]byte{
		"noise": noise, "zeros": make([]byte, 64<<10), "one byte": {0x16},
		"http2 and noise": append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), noise...),
		"endless line":    bytes.Repeat([]byte("a"), 4<<20),
		"half a request":  []byte("GET /ready HTTP/1.1\r\nHost: x\r\n"),
	}
	for port, address := range map[string]string{"grpc": d.grpc, "http": d.http, "monitoring": d.monitoring} {
		for shape, content := range shapes {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatalf("%s: %v", port, err)
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = conn.Write(content) // the server may hang up before it has read all
			_ = conn.(*net.TCPConn).CloseWrite()
			if _, err := io.Copy(io.Discard, conn); err != nil && errors.Is(err, errTimeout(err)) {
				t.Errorf("%s: %s: the server does not hang up: %v", port, shape, err)
			}
			conn.Close()
		}
	}
}

// errTimeout returns err if it is a timeout, and another error if it is not.
func errTimeout(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	return errors.New("no timeout")
}

func garbageRequests(t *testing.T, d *daemon) {
	large := withMeta("JUNK", strings.Repeat("x", 5<<20))
	noID, noName, kind := node("shop", "client", "10.1.9.9"), node("shop", "client", "10.1.9.9"), node("shop", "client", "10.1.9.9")
	noID.Id, noName.Id, kind.Id = "", "sidecar~10.1.9.9", "toaster~10.1.9.9~client.shop~shop.svc.cluster.local"
	for _, c := range []struct {
		name string
		raw  []byte
		code codes.Code
		want string
	}{
		{"noise", []byte("\xff\xff\xffnoise"), codes.InvalidArgument, "request is not protobuf"},
		{"a name that is not UTF-8", append(request(t, node("shop", "client", "10.1.9.9"), xds.Cluster.URL()), 3<<3|2, 1, 0xff), codes.InvalidArgument, "resource_names_subscribe"},
		{"no node", request(t, nil, xds.Cluster.URL()), codes.InvalidArgument, "the first request of a stream has no node"},
		{"node is noise", []byte{1<<3 | 2, 2, 0xff, 0xff}, codes.InvalidArgument, "node: not protobuf"},
		{"no id", request(t, noID, xds.Cluster.URL()), codes.InvalidArgument, "node.id: is empty"},
		{"short id", request(t, noName, xds.Cluster.URL()), codes.InvalidArgument, `node.id "sidecar~10.1.9.9": want type~ip~name.namespace~domain`},
		{"other proxy", request(t, kind, xds.Cluster.URL()), codes.InvalidArgument, `proxy type "toaster" is not served`},
		{"labels", request(t, withMeta("LABELS", "app=web"), xds.Cluster.URL()), codes.InvalidArgument, "node.metadata.LABELS: want an object of strings"},
		{"namespace", request(t, withMeta("NAMESPACE", 7), xds.Cluster.URL()), codes.InvalidArgument, "node.metadata.NAMESPACE: want a string"},
		{"addresses", request(t, withMeta("INSTANCE_IPS", "10.0.0.256"), xds.Cluster.URL()), codes.InvalidArgument, "INSTANCE_IPS"},
		{"5 MB", request(t, large, xds.Cluster.URL()), codes.ResourceExhausted, "larger than max"},
	} {
		_, err := say(t, d.grpc, deltaMethod, c.raw)
		if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: got %v, want %v with %q", c.name, err, c.code, c.want)
		}
	}
	if _, err := say(t, d.grpc, "/no.such.Service/Method", nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("another service: %v", err)
	}
}

func garbageSotW(t *testing.T, d *daemon) {
	if _, err := say(t, d.grpc, worldMethod, []byte{0xff}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("noise: %v", err)
	}
	raw := encode(t, &discoveryv3.DiscoveryRequest{TypeUrl: xds.Cluster.URL()})
	if _, err := say(t, d.grpc, worldMethod, raw); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no node") {
		t.Errorf("no node: %v", err)
	}
}
