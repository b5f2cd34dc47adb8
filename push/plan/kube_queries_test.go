//go:build kube

package plan

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"navarch.io/navarch/deploy/testcluster/controlplane"
	"navarch.io/navarch/push/istiometrics"
)

// The labels by which Kiali groups requests and connections (kiali: graph/telemetry/istio/istio.go); it ignores a
// series that lacks one of them.
const (
	kialiEnds = "source_cluster,source_workload_namespace,source_workload,source_canonical_service,source_canonical_revision,destination_cluster,destination_service_namespace," +
		"destination_service,destination_service_name,destination_workload_namespace,destination_workload,destination_canonical_service,destination_canonical_revision"
	kialiRequests = kialiEnds + ",request_protocol,response_code,grpc_response_status,response_flags"
	kialiTCP      = kialiEnds + ",response_flags"
)

// queries are queries of Kiali and of Istio's dashboards, each with the labels that its result must have, as NAME=VALUE
// separated by spaces.
var queries = map[string]struct{ ask, want string }{
	"Kiali, of the internet":      {`sum(rate(istio_requests_total{reporter="destination",source_workload="unknown",destination_workload_namespace="b"}[2m])) by (` + kialiRequests + `)`, "source_workload=unknown destination_workload=server-v2 destination_service_name=server response_code=200"},
	"Kiali, of other namespaces":  {`sum(rate(istio_requests_total{reporter="source",source_workload_namespace!="b",source_workload!="unknown",destination_service_namespace="b"}[2m])) by (` + kialiRequests + `)`, "source_workload=client-v1 source_canonical_service=client destination_workload=server-v2 request_protocol=http"},
	"Kiali, within the namespace": {`sum(rate(istio_requests_total{reporter="source",source_workload_namespace="a"}[2m])) by (` + kialiRequests + `)`, "source_workload=client-v1 destination_service=server.b.svc.cluster.local"},
	"Kiali, TCP":                  {`sum(rate(istio_tcp_sent_bytes_total{reporter="source",source_workload_namespace="a"}[2m])) by (` + kialiTCP + `)`, "source_workload=client-v1 destination_workload=server-v2 destination_service_name=server"},
	"Kiali, response times":       {`histogram_quantile(0.95, sum(rate(istio_request_duration_milliseconds_bucket{reporter="source",destination_service_namespace="b"}[2m])) by (le,source_workload,destination_service_name,request_protocol))`, "source_workload=client-v1 destination_service_name=server"},
	"Kiali, security":             {`sum(rate(istio_requests_total{reporter="destination",destination_service_namespace="b",connection_security_policy="mutual_tls"}[2m])) by (source_principal,destination_principal,connection_security_policy)`, "source_principal=spiffe://cluster.local/ns/a/sa/client destination_principal=spiffe://cluster.local/ns/b/sa/server"},
	"Kiali, health":               {`sum(rate(istio_requests_total{reporter="destination",destination_workload="server-v2",destination_workload_namespace="b"}[2m])) by (response_code,request_protocol)`, "request_protocol=http"},

	"mesh, volume":    {`round(sum(irate(istio_requests_total{reporter=~"source|waypoint"}[2m])), 0.01)`, ""},
	"mesh, success":   {`sum(rate(istio_requests_total{reporter=~"source|waypoint", response_code!~"5.*"}[2m])) / sum(rate(istio_requests_total{reporter=~"source|waypoint"}[2m]))`, ""},
	"mesh, not found": {`sum(irate(istio_requests_total{reporter=~"source|waypoint", response_code=~"4.*"}[2m]))`, ""},
	"mesh, table": {`label_join(sum(rate(istio_requests_total{reporter=~"source|waypoint"}[2m])) by (destination_workload, destination_workload_namespace, destination_service), "destination_workload_var", ".", "destination_workload", "destination_workload_namespace")`,
		"destination_workload_var=server-v2.b destination_service=server.b.svc.cluster.local"},
	"mesh, latency": {`label_join(histogram_quantile(0.90, sum(rate(istio_request_duration_milliseconds_bucket{reporter=~"source|waypoint"}[2m])) by (le, destination_workload, destination_workload_namespace)), "destination_workload_var", ".", "destination_workload", "destination_workload_namespace")`, "destination_workload_var=server-v2.b"},
	"mesh, TCP":     {`sum(rate(istio_tcp_received_bytes_total{reporter=~"source|waypoint"}[2m])) by (destination_workload, destination_workload_namespace, destination_service)`, "destination_workload=server-v2"},

	"service, incoming": {`sum(irate(istio_requests_total{connection_security_policy="mutual_tls",destination_service=~"server.b.svc.cluster.local",reporter=~"destination",source_workload=~"client",source_workload_namespace=~"a"}[2m])) by (source_workload, source_workload_namespace, response_code)`, "source_workload=client source_workload_namespace=a"},
	"service, clear":    {`sum(irate(istio_requests_total{connection_security_policy!="mutual_tls",destination_service=~"server.b.svc.cluster.local",reporter=~"destination"}[2m])) by (source_workload, response_code)`, "source_workload=unknown response_code=200"},
	"service, sizes":    {`histogram_quantile(0.50, sum(irate(istio_response_bytes_bucket{reporter=~"destination",destination_service=~"server.b.svc.cluster.local"}[2m])) by (source_workload, le))`, ""},
	"service, TCP":      {`sum(irate(istio_tcp_connections_opened_total{reporter="destination",destination_service=~"server.b.svc.cluster.local"}[2m]))`, ""},

	"workload, outgoing": {`sum(irate(istio_requests_total{destination_principal=~"spiffe.*",source_workload_namespace=~"a",source_workload=~"client-v1",reporter="source",destination_service=~"server.b.svc.cluster.local"}[2m])) by (destination_service, response_code)`, "destination_service=server.b.svc.cluster.local"},
	"workload, incoming": {`sum(rate(istio_requests_total{reporter="destination",destination_workload_namespace=~"b",destination_workload=~"server-v2"}[2m]))`, ""},
	"workload, TCP":      {`sum(irate(istio_tcp_connections_closed_total{reporter="source",source_workload_namespace=~"a",source_workload=~"client-v1"}[2m])) by (destination_service)`, "destination_service=server.b.svc.cluster.local"},
}

// Prometheus' own engine returns a result for each query of Kiali and Istio's dashboards from the metrics of real
// Envoys.
func TestKubeDashboardsAreAnswered(t *testing.T) {
	c := startCounting(t)
	pages := map[string][]string{}
	for range 2 {
		c.call(t)
		want := map[int]string{0: "2", 1: "4"}[len(pages["client"])]
		sees(t, c.client, clientOf, want, istiometrics.Response+"_count", `response_code="200"`)
		sees(t, c.server, serverOf, want, istiometrics.Response+"_count", `response_code="200"`, "mutual_tls")
		sees(t, c.client, clientOf, map[string]string{"2": "1", "4": "2"}[want], istiometrics.Closed)
		sees(t, c.server, serverOf, map[string]string{"2": "1", "4": "2"}[want], istiometrics.Closed)
		pages["client"], pages["server"] = append(pages["client"], spelled(t, c.client, clientOf)), append(pages["server"], spelled(t, c.server, serverOf))
	}
	expressions := map[string]string{}
	for name, q := range queries {
		expressions[name] = q.ask
	}
	for name, got := range answers(t, expressions, pages) {
		if len(got) == 0 {
			t.Errorf("%s: no answer", name)
		}
		for _, r := range got {
			if r.Value == "0" || r.Value == "NaN" {
				t.Errorf("%s: %v is %s", name, r.Labels, r.Value)
			}
			for pair := range strings.FieldsSeq(queries[name].want) {
				if label, value, _ := strings.Cut(pair, "="); r.Labels[label] != value {
					t.Errorf("%s: %s of %v, want %s", name, label, r.Labels, value)
				}
			}
		}
	}
}

type answer struct {
	Labels map[string]string
	Value  string
}

// answers evaluates expressions over pages that are scraped a minute apart, at the time of the last page.
func answers(t *testing.T, expressions map[string]string, pages map[string][]string) (all map[string][]answer) {
	t.Helper()
	tools, err := controlplane.Tools()
	if err != nil {
		t.Fatal(err)
	}
	input, err := json.Marshal(map[string]any{"expressions": expressions, "pages": pages})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(tools, "bin", "promql"), "-evaluate")
	cmd.Stdin = bytes.NewReader(input)
	var wrong bytes.Buffer
	cmd.Stderr = &wrong
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil || len(all) != len(expressions) {
		t.Fatalf("run `make kube-tools`: %v, %d answers\n%s", err, len(all), wrong.String())
	}
	return all
}
