package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	logsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// taskCollector contains the gRPC services that proxies of the tasks use: the rate limit service, and collectors of
// spans and of access logs, by OTLP and by Envoy's own protocol.
type taskCollector struct {
	ratelimitv3.UnimplementedRateLimitServiceServer
	accesslogv3.UnimplementedAccessLogServiceServer
	mu       sync.Mutex
	requests map[string]int // by what they are limited by
	reported []string       // spans and entries of logs with what they are of, as JSON
}

// taskLimits is the number of permitted requests by path, in the one domain with limits.
var taskLimits = map[string]int{"/limited": 3, "/edge-limited": 3}

// ShouldRateLimit counts the requests of all proxies together, by their descriptor PATH, and never begins again.
func (c *taskCollector) ShouldRateLimit(_ context.Context, r *ratelimitv3.RateLimitRequest) (*ratelimitv3.RateLimitResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	code := ratelimitv3.RateLimitResponse_OK
	for _, d := range r.GetDescriptors() {
		for _, e := range d.GetEntries() {
			limit, limited := taskLimits[e.GetValue()]
			if r.GetDomain() != "reviews-ratelimit" || e.GetKey() != "PATH" || !limited {
				continue
			}
			if c.requests[e.GetValue()]++; c.requests[e.GetValue()] > limit {
				code = ratelimitv3.RateLimitResponse_OVER_LIMIT
			}
		}
	}
	return &ratelimitv3.RateLimitResponse{OverallCode: code}, nil
}

func (c *taskCollector) add(of, what proto.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reported = append(c.reported, protojson.MarshalOptions{}.Format(of)+" "+protojson.MarshalOptions{}.Format(what))
}

// count returns the number of spans and entries with all of these texts, and the last one of all.
func (c *taskCollector) count(texts []string) (n int, last string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, last = range c.reported {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(last, text) }) {
			n++
		}
	}
	return n, last
}

// taskSpans is the collector of spans.
type taskSpans struct {
	collectorv1.UnimplementedTraceServiceServer
	to *taskCollector
}

func (s taskSpans) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				s.to.add(of.Resource, span)
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// taskLogs is the collector of access logs by OTLP.
type taskLogs struct {
	logsv1.UnimplementedLogsServiceServer
	to *taskCollector
}

func (s taskLogs) Export(_ context.Context, r *logsv1.ExportLogsServiceRequest) (*logsv1.ExportLogsServiceResponse, error) {
	for _, of := range r.ResourceLogs {
		for _, scope := range of.ScopeLogs {
			for _, record := range scope.LogRecords {
				s.to.add(of.Resource, record)
			}
		}
	}
	return &logsv1.ExportLogsServiceResponse{}, nil
}

// StreamAccessLogs collects what Envoy reports by its own protocol.
func (c *taskCollector) StreamAccessLogs(stream accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	for of := (*accesslogv3.StreamAccessLogsMessage_Identifier)(nil); ; {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetIdentifier() != nil { // of the first message of a stream
			of = &accesslogv3.StreamAccessLogsMessage_Identifier{LogName: m.GetIdentifier().GetLogName()}
		}
		for _, entry := range m.GetHttpLogs().GetLogEntry() {
			c.add(of, entry)
		}
	}
}

func (s *taskStage) collect(l net.Listener) {
	s.collector = &taskCollector{requests: map[string]int{}}
	server := grpc.NewServer()
	ratelimitv3.RegisterRateLimitServiceServer(server, s.collector)
	accesslogv3.RegisterAccessLogServiceServer(server, s.collector)
	collectorv1.RegisterTraceServiceServer(server, taskSpans{to: s.collector})
	logsv1.RegisterLogsServiceServer(server, taskLogs{to: s.collector})
	s.t.Cleanup(server.Stop)
	go func() { _ = server.Serve(l) }()
}

// headerApp answers in X-App the spelling of the header that the path names, or "absent". It implements HTTP/1.1
// itself, because net/http does not report the spelling of names.
func headerApp(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	lines.Scan()
	_, path, _ := strings.Cut(lines.Text(), " /")
	wanted, _, _ := strings.Cut(path, " ")
	answer := "absent"
	for lines.Scan() && lines.Text() != "" {
		if name, _, _ := strings.Cut(lines.Text(), ":"); strings.EqualFold(name, wanted) {
			answer = name
		}
	}
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-App: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", answer)
}

// accept serves each connection in a goroutine of its own, until the listener is closed.
func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go serve(c)
	}
}

// tcpApp sends its version once the client has sent data: Envoy selects a chain by a connection's first bytes.
func tcpApp(version string) func(net.Conn) {
	return func(c net.Conn) {
		defer c.Close()
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			_, _ = io.WriteString(c, version)
		}
	}
}

// gateway runs an egress gateway with a certificate of the mesh. It accepts mTLS only, and returns the server name and
// the caller's identity of a request.
func (s *taskStage) gateway(t *testing.T, d *daemon, data, roots string) {
	t.Helper()
	text, err := os.ReadFile(roots)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	own, _, err := signed(bearer(t.Context(), token(t, data, "istio-egress", "istio-egressgateway")), t, d.secure,
		&tls.Config{RootCAs: pool, ServerName: "istiod.istio-system.svc"})
	if err != nil {
		t.Fatal(err)
	}
	l := tls.NewListener(s.listen(".7:8444"), &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	go func() {
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-App", fmt.Sprintf("%s,%s", r.TLS.ServerName, r.TLS.PeerCertificates[0].URIs[0]))
		}))
	}()
}
