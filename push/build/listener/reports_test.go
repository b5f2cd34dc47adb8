package listener

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// collector receives spans by OTLP and access logs by Envoy's gRPC service.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	accesslogv3.UnimplementedAccessLogServiceServer
	spans chan *tracev1.ResourceSpans
	paths chan string // of what was logged
}

func startCollector(t *testing.T) (*collector, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{spans: make(chan *tracev1.ResourceSpans, 100), paths: make(chan string, 100)}, grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	accesslogv3.RegisterAccessLogServiceServer(server, c)
	go func() { _ = server.Serve(l) }() // ends with Stop
	t.Cleanup(server.Stop)
	return c, l.Addr().(*net.TCPAddr).Port
}

func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	for _, s := range r.GetResourceSpans() {
		c.spans <- s
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func (c *collector) StreamAccessLogs(stream accesslogv3.AccessLogService_StreamAccessLogsServer) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, entry := range m.GetHttpLogs().GetLogEntry() {
			c.paths <- entry.GetRequest().GetPath()
		}
	}
}

// next returns the next value of a channel, or fails the test after a minute.
func next[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case v = <-from:
	case <-ctx.Done():
		t.Fatal("nothing was reported")
	}
	return v
}

// A real Envoy reports requests to real collectors: the access logs for which the CEL expression holds, and spans with
// their tags, under the service name of its node.
func TestReports(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/missing" {
			http.NotFound(w, r)
		}
	}))
	defer app.Close()
	c, port := startCollector(t)
	mesh, err := model.New(model.MeshKey, 0, &meshv1.MeshConfig{ExtensionProviders: []*meshv1.MeshConfig_ExtensionProvider{
		{Name: "logs", Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyHttpAls{EnvoyHttpAls: &meshv1.MeshConfig_ExtensionProvider_EnvoyHttpGrpcV3LogProvider{}}},
		{Name: "spans", Provider: &meshv1.MeshConfig_ExtensionProvider_Opentelemetry{Opentelemetry: &meshv1.MeshConfig_ExtensionProvider_OpenTelemetryTracingProvider{}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	common := stock(t)
	common.Mesh = mesh.(*model.Mesh)
	to := telemetry.Service{Host: "collector.test", Cluster: "collector"}
	common.Telemetry = telemetry.Spec{
		Logs: (&intern.Table[telemetry.Log]{}).List(telemetry.Log{Provider: "logs", To: to, Filter: "response.code >= 400"}),
		Tracing: telemetry.Tracing{On: true, Provider: "spans", To: to, Name: "web.shop", Sampling: 100, RequestID: true, Tags: (&intern.Table[telemetry.Tag]{}).List(
			telemetry.Tag{Name: "host", Kind: telemetry.Formatter, Value: "%REQ(:AUTHORITY)%"}, telemetry.Tag{Name: "team", Value: "blue"},
			telemetry.Tag{Name: "user", Kind: telemetry.Header, Value: "x-user", Default: "nobody"})},
	}
	in := freePort(t)
	_, l := build(t, Ingress{Common: common, Name: "in", Bind: "127.0.0.1", Inner: InboundPort{Port: in, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "app", Host: "web.shop", ServicePort: in}})
	bootstrap := fold(t, nil, map[string]int{"app": app.Listener.Addr().(*net.TCPAddr).Port, "collector": port}, l)
	for _, cluster := range bootstrap["static_resources"].(map[string]any)["clusters"].([]map[string]any) {
		if cluster["name"] == "collector" { // it speaks gRPC
			cluster["typed_extension_protocol_options"] = map[string]any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": map[string]any{
				"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
				"explicit_http_config": map[string]any{"http2_protocol_options": map[string]any{}},
			}}
		}
	}
	envoytest.Start(t, bootstrap).Live()
	for _, path := range []string{"/", "/", "/", "/", "/", "/missing"} { // five spans are sent at once
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", in, path))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	if path := next(t, c.paths); path != "/missing" {
		t.Errorf("logged first: %s, want what the expression holds for alone", path)
	}
	got := next(t, c.spans)
	service, tags := "", map[string]string{}
	for _, a := range got.GetResource().GetAttributes() {
		if a.GetKey() == "service.name" {
			service = a.GetValue().GetStringValue()
		}
	}
	for _, a := range got.GetScopeSpans()[0].GetSpans()[0].GetAttributes() {
		tags[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if service != "web.shop" || tags["team"] != "blue" || tags["user"] != "nobody" || tags["host"] != fmt.Sprintf("127.0.0.1:%d", in) {
		t.Errorf("a span of %s with tags %v", service, tags)
	}
}
