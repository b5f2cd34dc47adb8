package ingest

import (
	"bytes"
	"fmt"
	"runtime"
	"testing"

	"navarch.io/navarch/store/object"
)

// BenchmarkPods measures a leader with 20,000 Pods and 4,000 EndpointSlices of 5 endpoints, emitted in groups of 100
// objects. It reports the heap that they use afterwards.
func BenchmarkPods(b *testing.B) {
	const pods, each = 20000, 5
	pod := put(b, "{apiVersion: v1, kind: Pod, metadata: {name: pod-00000, namespace: shop, labels: {app: web, pod-template-hash: abc}}, "+
		"spec: {nodeName: n1, serviceAccountName: web}, "+
		"status: {podIP: 10.0.0.1, conditions: [{type: Ready, status: \"True\"}]}}")
	b.ReportAllocs()
	var heap uint64
	for b.Loop() {
		b.StopTimer()
		var all Emits
		add := func(e object.Event) {
			if n := len(all); n == 0 || len(all[n-1].Objects) == 100 {
				all = append(all, Emit{})
			}
			all[len(all)-1].Objects = append(all[len(all)-1].Objects, e)
		}
		for i := range pods {
			o := *pod.Object
			o.ID.Name, o.ID.Namespace = fmt.Sprintf("pod-%05d", i), fmt.Sprint("n", i%40)
			o.JSON = bytes.ReplaceAll(o.JSON, []byte("pod-00000"), []byte(o.ID.Name))
			o.JSON = bytes.ReplaceAll(o.JSON, []byte("10.0.0.1"), fmt.Appendf(nil, "10.0.%d.%d", i/250, i%250))
			add(object.Event{Op: object.Put, ID: o.ID, Object: &o})
		}
		for i := range pods / each {
			text := fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s%d, namespace: n%d, "+
				"labels: {kubernetes.io/service-name: web}}, addressType: IPv4, ports: [{name: http, port: 80}], endpoints: [", i, i%40)
			for j := range each {
				p := i%40 + 40*((i/40)*each+j)
				text += fmt.Sprintf("{addresses: [10.0.%d.%d], targetRef: {kind: Pod, name: pod-%05d}},", p/250, p%250, p)
			}
			add(put(b, text+"]}"))
		}
		s := NewState(Options{})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		s.Step(all)
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		heap = after.HeapAlloc - before.HeapAlloc
		runtime.KeepAlive(s)
		runtime.KeepAlive(all)
		b.StartTimer()
	}
	b.ReportMetric(float64(heap)/1e6, "MB")
}
