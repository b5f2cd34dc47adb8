package istiometrics

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

var web = Of("web-v1", "shop", "Kubernetes", map[string]string{"app": "web", "version": "v1"})

// spelled returns a translated page, which is written in two parts.
func spelled(t *testing.T, lines ...string) string {
	t.Helper()
	var out bytes.Buffer
	p := NewPage(&out, web)
	for _, line := range lines {
		if n, err := p.Write([]byte(line + "\n")); err != nil || n != len(line)+1 {
			t.Fatal(n, err)
		}
	}
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

const toReviews = `upstream_cluster="outbound|80||reviews.shop.svc.cluster.local",peer_workload="reviews-v2;books;reviews;v2;west",` +
	`peer_services="[{\"host\":\"reviews.books.svc.cluster.local\",\"name\":\"reviews\",\"namespace\":\"books\"}]"`

// The labels of each side are Istio's; labels that are not known are "unknown".
func TestLabels(t *testing.T) {
	const webSource = `source_workload="web-v1",source_canonical_service="web",source_canonical_revision="v1",source_workload_namespace="shop",` +
		`source_principal="spiffe://t/ns/shop/sa/w",source_app="web",source_version="v1",source_cluster="Kubernetes"`
	for name, c := range map[string]struct{ counted, want string }{
		"a client": {
			`envoy_istio_requests_total{reporter="source",source_principal="spiffe://t/ns/shop/sa/w",destination_principal="spiffe://t/ns/books/sa/r",response_code="200",response_flags="-",grpc_response_status="",` + toReviews + `} 7`,
			`istio_requests_total{reporter="source",` + webSource + `,destination_workload="reviews-v2",destination_workload_namespace="books",destination_principal="spiffe://t/ns/books/sa/r",` +
				`destination_app="reviews",destination_version="v2",destination_service="reviews.books.svc.cluster.local",destination_canonical_service="reviews",destination_canonical_revision="v2",` +
				`destination_service_name="reviews",destination_service_namespace="books",destination_cluster="west",request_protocol="http",response_code="200",grpc_response_status="",response_flags="-",connection_security_policy="unknown"} 7`,
		},
		"a client that nothing answers": {
			`envoy_istio_requests_total{reporter="source",source_principal="",destination_principal="",response_code="503",response_flags="UH",grpc_response_status="14",upstream_cluster="PassthroughCluster",peer_workload="",peer_services=""} 1`,
			`istio_requests_total{reporter="source",` + strings.Replace(webSource, "spiffe://t/ns/shop/sa/w", "unknown", 1) + `,destination_workload="unknown",destination_workload_namespace="unknown",destination_principal="unknown",` +
				`destination_app="unknown",destination_version="unknown",destination_service="unknown",destination_canonical_service="unknown",destination_canonical_revision="unknown",` +
				`destination_service_name="PassthroughCluster",destination_service_namespace="unknown",destination_cluster="unknown",request_protocol="grpc",response_code="503",grpc_response_status="14",response_flags="UH",connection_security_policy="unknown"} 1`,
		},
		"a server, over TCP": {
			`envoy_istio_tcp_sent_bytes_total{reporter="destination",source_principal="spiffe://t/ns/books/sa/r,spiffe://other",destination_principal="",response_flags="-",upstream_cluster="inbound|80||",peer_services="[{\"host\":\"h\",\"name\":\"n\",\"namespace\":\"s\"}]"} 7`,
			`istio_tcp_sent_bytes_total{reporter="destination",source_workload="r",source_canonical_service="unknown",source_canonical_revision="unknown",source_workload_namespace="books",source_principal="spiffe://t/ns/books/sa/r,spiffe://other",` +
				`source_app="unknown",source_version="unknown",source_cluster="unknown",destination_workload="web-v1",destination_workload_namespace="shop",destination_principal="unknown",destination_app="web",destination_version="v1",` +
				`destination_service="h",destination_canonical_service="web",destination_canonical_revision="v1",destination_service_name="n",destination_service_namespace="s",destination_cluster="Kubernetes",request_protocol="tcp",response_flags="-",connection_security_policy="mutual_tls"} 7`,
		},
	} {
		if got := spelled(t, c.counted); got != c.want+"\n" {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
	if got := spelled(t, `envoy_istio_requests_total{reporter="destination",source_principal=""} 1`); !strings.Contains(got, `source_workload="unknown"`) || !strings.Contains(got, `connection_security_policy="none"`) {
		t.Errorf("in the clear: %s", got)
	}
}

// Removed labels are absent, and series that become equal are summed, also buckets. An operator's tag is kept, also in
// the place of one of Istio's.
func TestOverrides(t *testing.T) {
	without := strings.Join(order[1:], ",")
	series := func(peer, le, value string) string {
		return `envoy_istio_request_bytes_bucket{reporter="source",team="a\"b\\c",peer_workload="` + peer + `",without="` + without + `",le="` + le + `"} ` + value
	}
	got := spelled(t, "# TYPE envoy_istio_request_bytes histogram", series("a;b;c;d;e", "1", "2"), series("a;b;c;d;e", "+Inf", "3"), series("x;b;c;d;e", "1", "4"), series("x;b;c;d;e", "+Inf", "6"),
		"# TYPE envoy_istio_requests_total counter", `envoy_istio_requests_total{reporter="source",request_protocol="mine",without="`+strings.ReplaceAll(without, ",request_protocol", "")+`"} 1`, "# TYPE envoy_up gauge", "envoy_up 1")
	want := `# TYPE istio_request_bytes histogram
istio_request_bytes_bucket{reporter="source",team="a\"b\\c",le="1"} 6
istio_request_bytes_bucket{reporter="source",team="a\"b\\c",le="+Inf"} 9
# TYPE istio_requests_total counter
istio_requests_total{reporter="source",request_protocol="mine"} 1
# TYPE envoy_up gauge
envoy_up 1
`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// A line that does not parse is unchanged, and an error of the writer is returned.
func TestOtherLines(t *testing.T) {
	for _, line := range []string{`envoy_cluster_x{a="b"} 1`, "# HELP envoy_istio_x y", "", "istio_requests_total{} 1", "envoy_istio"} {
		if got := spelled(t, line); got != line+"\n" {
			t.Errorf("%q became %q", line, got)
		}
	}
	for in, want := range map[string]string{"envoy_istio_x 1": "istio_x 1", `envoy_istio_x{a="b} 1`: `istio_x{a="b} 1`, `envoy_istio_x{a} 1`: `istio_x{a} 1`} {
		if got := spelled(t, in); got != want+"\n" {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	broken := errors.New("gone")
	p := NewPage(failing{broken}, web)
	if _, err := p.Write([]byte("a 1\n")); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }
