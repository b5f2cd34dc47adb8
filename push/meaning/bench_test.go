package meaning

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// BenchmarkOver compares the views of 100 workloads that see 1,000 services, of which one gets another weight.
func BenchmarkOver(b *testing.B) {
	const services, views = 1000, 100
	before := map[string][]byte{"rule.yaml": []byte(fmt.Sprintf(weighted, 90, 10))}
	for i := range services {
		before[fmt.Sprintf("s%d.yaml", i)] = fmt.Appendf(nil, service, i, i/250, i%250)
	}
	after := maps.Clone(before)
	after["rule.yaml"] = []byte(fmt.Sprintf(weighted, 50, 50))
	old, now := planFiles(b, before, "client"), planFiles(b, after, "client")
	for b.Loop() {
		var all []View
		var d Decoder
		for range views {
			v, err := d.Between(old.set, now.set)
			if err != nil {
				b.Fatal(err)
			}
			all = append(all, v)
		}
		if s := Over(context.Background(), slices.Values(all), Reach{}); len(s.Facts) != 1 || len(s.Risks) != 1 || s.Risks[0].Views != views {
			b.Fatalf("%+v", s)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N*views), "ms/view")
}

const service = `apiVersion: v1
kind: Service
metadata: {name: s%d, namespace: shop}
spec:
  clusterIP: 10.96.%d.%d
  ports: [{name: http, port: 80, targetPort: 8080}]
`

const weighted = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: s1, namespace: shop}
spec:
  hosts: [s1]
  http:
  - route:
    - {destination: {host: s1}, weight: %d}
    - {destination: {host: s2}, weight: %d}
`
