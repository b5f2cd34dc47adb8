package metrics

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	resources "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Groups are the served API groups with their versions.
var Groups = map[string]string{"metrics.k8s.io": "v1beta1", "custom.metrics.k8s.io": "v1beta2"}

// Handler returns the handler of an aggregated API server.
func (c *Collector) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1", func(w http.ResponseWriter, _ *http.Request) {
		verbs := metav1.Verbs{"get", "list"}
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "metrics.k8s.io/v1beta1", APIResources: []metav1.APIResource{
				{Name: "nodes", Kind: "NodeMetrics", Verbs: verbs}, {Name: "pods", Kind: "PodMetrics", Namespaced: true, Verbs: verbs}}})
	})
	mux.HandleFunc("GET /apis/custom.metrics.k8s.io/v1beta2", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
			GroupVersion: "custom.metrics.k8s.io/v1beta2", APIResources: c.customNames()})
	})
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/nodes", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, resources.NodeMetricsList{TypeMeta: metav1.TypeMeta{Kind: "NodeMetricsList", APIVersion: "metrics.k8s.io/v1beta1"},
			Items: c.nodes()})
	})
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/pods", c.servePods)
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods", c.servePods)
	mux.HandleFunc("GET /apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods/{name}", c.servePod)
	mux.HandleFunc("GET /apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/{name}/{metric}", c.serveCustom)
	return mux
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object) // fails if the client is gone
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}

// quantity converts a number with a precision of one thousandth, as for CPU.
func quantity(v float64) resource.Quantity {
	return *resource.NewMilliQuantity(int64(v*1000), resource.DecimalSI)
}

// usageOf returns the usage of a container; false: there are fewer than two samples.
func usageOf(one *containerMetrics) (list corev1.ResourceList, over time.Duration, ok bool) {
	cpu, over, ok := one.cpu.rate()
	memory, _ := one.memory.last()
	return corev1.ResourceList{corev1.ResourceCPU: quantity(cpu),
		corev1.ResourceMemory: *resource.NewQuantity(int64(memory), resource.BinarySI)}, over, ok
}

// podsOf returns the metrics of the selected Pods of a namespace (empty: of all) with samples of all containers.
func (c *Collector) podsOf(namespace string, selector labels.Selector) []resources.PodMetrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := []resources.PodMetrics{}
	for _, p := range c.pods {
		if namespace != "" && p.pod.Namespace != namespace || !selector.Matches(labels.Set(p.pod.Labels)) {
			continue
		}
		m := resources.PodMetrics{TypeMeta: metav1.TypeMeta{Kind: "PodMetrics", APIVersion: "metrics.k8s.io/v1beta1"},
			ObjectMeta: metav1.ObjectMeta{Name: p.pod.Name, Namespace: p.pod.Namespace, Labels: p.pod.Labels}, Timestamp: metav1.Now()}
		complete := len(p.containers) > 0
		for name, one := range p.containers {
			used, over, ok := usageOf(one)
			complete = complete && ok
			m.Window.Duration = max(m.Window.Duration, over)
			m.Containers = append(m.Containers, resources.ContainerMetrics{Name: name, Usage: used})
		}
		if complete {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, func(a, b resources.PodMetrics) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return all
}

// nodes returns the sums over the Pods of each node.
func (c *Collector) nodes() []resources.NodeMetrics {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]resources.NodeMetrics{}
	for _, p := range c.pods {
		n, ok := all[p.pod.Spec.NodeName]
		if !ok {
			n = resources.NodeMetrics{ObjectMeta: metav1.ObjectMeta{Name: p.pod.Spec.NodeName},
				Timestamp: metav1.Now(), Window: metav1.Duration{Duration: window}, Usage: corev1.ResourceList{}}
		}
		for _, one := range p.containers {
			used, _, _ := usageOf(one)
			for name, q := range used {
				sum := n.Usage[name]
				sum.Add(q)
				n.Usage[name] = sum
			}
		}
		all[p.pod.Spec.NodeName] = n
	}
	list := []resources.NodeMetrics{}
	for _, n := range all {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b resources.NodeMetrics) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (c *Collector) servePods(w http.ResponseWriter, r *http.Request) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	answer(w, resources.PodMetricsList{TypeMeta: metav1.TypeMeta{Kind: "PodMetricsList", APIVersion: "metrics.k8s.io/v1beta1"},
		Items: c.podsOf(r.PathValue("namespace"), selector)})
}

func (c *Collector) servePod(w http.ResponseWriter, r *http.Request) {
	for _, p := range c.podsOf(r.PathValue("namespace"), labels.Everything()) {
		if p.Name == r.PathValue("name") {
			answer(w, p)
			return
		}
	}
	refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no metrics of pod "+r.PathValue("name"))
}

// customNames returns the names of the metrics of all pages.
func (c *Collector) customNames() []metav1.APIResource {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for _, p := range c.pods {
		for name := range p.page {
			names[name] = true
		}
	}
	list := []metav1.APIResource{}
	for name := range names {
		list = append(list, metav1.APIResource{Name: "pods/" + name, Kind: "MetricValueList", Namespaced: true, Verbs: metav1.Verbs{"get"}})
	}
	slices.SortFunc(list, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// perSecond is the suffix of a metric's name that requests the rate of the counter with that name, or with that name
// and _total.
const perSecond = "_per_second"

// value returns a Pod's metric: the newest value, or the rate.
func (p *podMetrics) value(metric string) (v float64, over time.Duration, ok bool) {
	if v, ok = p.page[metric].last(); ok {
		return v, 0, true
	}
	base, rate := strings.CutSuffix(metric, perSecond)
	if !rate {
		return 0, 0, false
	}
	if v, over, ok = p.page[base].rate(); !ok {
		v, over, ok = p.page[base+"_total"].rate()
	}
	return v, over, ok
}

func (c *Collector) serveCustom(w http.ResponseWriter, r *http.Request) {
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	name, metric := r.PathValue("name"), r.PathValue("metric")
	list := custom.MetricValueList{TypeMeta: metav1.TypeMeta{Kind: "MetricValueList", APIVersion: "custom.metrics.k8s.io/v1beta2"},
		Items: []custom.MetricValue{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		if p.pod.Namespace != r.PathValue("namespace") || name != "*" && name != p.pod.Name || !selector.Matches(labels.Set(p.pod.Labels)) {
			continue
		}
		v, over, ok := p.value(metric)
		if !ok {
			continue
		}
		seconds := int64(over.Seconds())
		list.Items = append(list.Items,
			custom.MetricValue{DescribedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.pod.Namespace, Name: p.pod.Name},
				Metric: custom.MetricIdentifier{Name: metric}, Timestamp: metav1.Now(), WindowSeconds: &seconds, Value: quantity(v)})
	}
	if len(list.Items) == 0 {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "no Pod says "+metric)
		return
	}
	answer(w, list)
}
