package kube

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Lists of a part alone, which nothing shows to be one, take away no Service, no endpoint and no Workload, for whichever kinds they come and whether an object in it is
// another one than before; the rest comes 30 seconds later. (Fault 11.)
func TestPartialLists(t *testing.T) {
	objects := func(from, n int) map[string][]runtime.Object {
		all := map[string][]runtime.Object{}
		for i := from; i < from+n; i++ {
			web, pod, address := fmt.Sprint("web-", i), fmt.Sprint("pod-", i), fmt.Sprint("10.244.0.", i+1)
			slice := sliceAs(endpointAs(pod, address, true, false))
			slice.Name, slice.Labels = web, map[string]string{"kubernetes.io/service-name": web}
			all["Service"] = append(all["Service"], &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: web},
				Spec: corev1.ServiceSpec{ClusterIP: fmt.Sprint("10.96.0.", i+1), Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
			all["Pod"] = append(all["Pod"], podAs(pod, address, true, false))
			all["EndpointSlice"] = append(all["EndpointSlice"], slice)
		}
		return all
	}
	const many, part = 30, 12
	kinds := []string{"EndpointSlice", "Pod", "Service"}
	for _, of := range [][]string{kinds, {"EndpointSlice"}, {"Pod"}, {"Service"}} {
		l := newLeader(t)
		l.put("Namespace", aNamespace("shop", false))
		l.put("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		for _, kind := range kinds {
			l.put(kind, objects(0, many)[kind]...)
		}
		l.lead()
		for _, kind := range of {
			l.list(kind, objects(0, part)[kind]...)
			if written := l.change(); len(written) > 0 {
				t.Errorf("%q in part: after %s %q", of, kind, written)
			}
		}
		if held := l.s.Held(); len(held) != len(of)*(many-part) {
			t.Errorf("%q in part: %d are held", of, len(held))
		}
		l.put("Pod", podAs("pod-0", "10.244.0.1", false, false)) // what does change meanwhile is written
		if written := l.change(); !slices.Equal(written, []string{"put Workload pod-0"}) {
			t.Errorf("%q in part: a Pod that is not ready any more: %q", of, written)
		}
		l.put("Pod", podAs("pod-0", "10.244.0.1", true, false))
		l.change()
		l.at = l.at.Add(30 * time.Second)
		for _, kind := range of {
			l.list(kind, objects(0, many)[kind]...)
			if written := l.change(); len(written) > 0 {
				t.Errorf("%q whole: after %s %q", of, kind, written)
			}
		}
		if held := l.s.Held(); len(held) > 0 {
			t.Errorf("%q whole: held %v", of, held)
		}
	}
}
