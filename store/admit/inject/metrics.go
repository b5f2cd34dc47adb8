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

// scrapeAnnotations returns the settings in the annotations that Prometheus's usual rules read: prometheus.io/scrape,
// port and path. Any spelling counts that becomes the same label of Prometheus, which has underscores for all
// characters except letters and digits. there lists the names that the Pod has.
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

// mergeMetrics makes Prometheus scrape the agent, which returns the metrics of the application, Envoy and itself as one
// page. It changes nothing if the Pod refuses to be scraped or to have its metrics merged. An error means that a target
// of the application is the agent itself.
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

// addTargets adds the targets that a Pod lists. Agents that know no lists get the first one, unless the Pod names
// another.
func addTargets(to *scrape.Settings, pod *corev1.Pod, agent int32) (err error) {
	if to.Targets, err = scrape.Parse(pod.Annotations[scrape.Annotation]); err != nil || to.Targets == nil {
		return err
	}
	for _, t := range to.Targets {
		if int32(t.Port) == agent {
			return fmt.Errorf("annotation %s: port %d is the agent's, which would ask itself", scrape.Annotation, t.Port)
		}
	}
	to.Scrape = cmp.Or(to.Scrape, "true")
	if to.Port == "" {
		to.Port, to.Path = strconv.Itoa(int(to.Targets[0].Port)), to.Targets[0].Path
	}
	return nil
}

// restoreMetrics reverses mergeMetrics. text is the agent's variable.
func restoreMetrics(pod *corev1.Pod, text string) {
	now, there := scrapeAnnotations(pod)
	if now.Path != agentMetrics {
		return // the annotations were changed since
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
