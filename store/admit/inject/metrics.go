package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"istio.io/api/annotation"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/scrape"
)

const agentMetrics = "/stats/prometheus"

// scrapeAnnotations returns the values of the annotations prometheus.io/scrape, port and path of a Pod. Names are
// compared as Prometheus does, with an underscore in place of each character except letters and digits. If several
// annotations have the same name in this form, the last one in sorted order counts. The second result lists the
// original names of all these annotations, sorted.
func scrapeAnnotations(pod *corev1.Pod) (s scrape.Settings, there []string) {
	into := map[string]*string{"prometheus_io_scrape": &s.Scrape, "prometheus_io_port": &s.Port, "prometheus_io_path": &s.Path}
	for _, name := range sorted(pod.Annotations) {
		if value := into[sanitized(name)]; value != nil {
			*value = pod.Annotations[name]
			there = append(there, name)
		}
	}
	return s, there
}

func sanitized(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}

// mergeMetrics makes Prometheus scrape the agent, at its port. The agent returns the metrics of the application, Envoy
// and itself as one page. mergeMetrics changes nothing in four cases: prometheus.io/scrape is false, the Pod or the
// mesh disables merging, the agent's port is 0, or prometheus.io/port is the agent's port already. The proxy's
// container (sidecar) may be nil. Errors are those of addTargets.
func mergeMetrics(pod *corev1.Pod, sidecar *corev1.Container, mesh *meshv1alpha1.MeshConfig, port int32) error {
	was, there := scrapeAnnotations(pod)
	if no, err := strconv.ParseBool(was.Scrape); err == nil && !no {
		return nil
	}
	merges := mesh.GetEnablePrometheusMerge() == nil || mesh.GetEnablePrometheusMerge().GetValue()
	if b, err := strconv.ParseBool(pod.Annotations[annotation.PrometheusMergeMetrics.Name]); err == nil {
		merges = b
	}
	agent := strconv.Itoa(int(port))
	if !merges || port == 0 || was.Port == agent {
		return nil
	}
	if err := addTargets(&was, pod, port); err != nil {
		return err
	}
	if was.Targets != nil {
		there = append(there, scrape.Annotation)
	}
	if sidecar != nil && len(there) > 0 {
		text, err := json.Marshal(was)
		if err != nil {
			return err
		}
		setEnv(sidecar, scrape.Variable, string(text))
	}
	for _, name := range there {
		delete(pod.Annotations, name)
	}
	pod.Annotations["prometheus.io/port"] = agent
	pod.Annotations["prometheus.io/path"] = agentMetrics
	pod.Annotations["prometheus.io/scrape"] = "true"
	return nil
}

// addTargets sets Targets from the annotation scrape.Annotation. Unless the Pod states prometheus.io/port, it also sets
// Port and Path to the first target, for agents that do not support lists. It fails if the annotation is invalid or
// names the agent's port.
func addTargets(to *scrape.Settings, pod *corev1.Pod, agent int32) (err error) {
	if to.Targets, err = scrape.Parse(pod.Annotations[scrape.Annotation]); err != nil || to.Targets == nil {
		return err
	}
	for _, t := range to.Targets {
		if int32(t.Port) == agent {
			return fmt.Errorf("annotation %s: port %d is the agent's own: the merged page would request itself", scrape.Annotation, t.Port)
		}
	}
	to.Scrape = cmp.Or(to.Scrape, "true")
	if to.Port == "" {
		to.Port, to.Path = strconv.Itoa(int(to.Targets[0].Port)), to.Targets[0].Path
	}
	return nil
}

// restoreMetrics reverses mergeMetrics. The parameter text is the value of the agent's variable scrape.Variable. It is
// empty if the Pod had no annotations for Prometheus. The parameter added lists the annotations that the earlier
// injection has added, or is nil if the earlier injector does not list them.
func restoreMetrics(pod *corev1.Pod, text string, added []string) {
	now, there := scrapeAnnotations(pod)
	if now.Path != agentMetrics || now.Scrape != "true" {
		return // the annotations were changed after the injection, or are the author's
	}
	if text == "" && added != nil && !has(added, "prometheus.io/path") {
		return // the annotations are the author's
	}
	for _, name := range there {
		delete(pod.Annotations, name)
	}
	var was scrape.Settings
	if text == "" || json.Unmarshal([]byte(text), &was) != nil {
		return
	}
	for name, value := range map[string]string{"prometheus.io/scrape": was.Scrape, "prometheus.io/port": was.Port,
		"prometheus.io/path": was.Path, scrape.Annotation: scrape.Format(was.Targets)} {
		if value != "" {
			pod.Annotations[name] = value
		}
	}
}
