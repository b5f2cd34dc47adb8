package inject

import (
	"fmt"
	"slices"
	"strings"

	"istio.io/api/annotation"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/bypass"
	"navarch.io/navarch/store/normal"
)

// doubtful maps annotations to their checks. A Pod with an invalid value is injected, but its proxy does not start.
var doubtful = map[string]func(string) error{
	annotation.SidecarLogLevel.Name:          isEnvoyLevel,
	annotation.SidecarComponentLogLevel.Name: isEnvoyLevels,
}

// Warnings lists the faults of an injected Pod, as one-line texts without a final full stop. It returns nil if there
// are no faults. Faults are invalid or ineffective annotations and labels, and containers whose traffic bypasses the
// proxy. They do not prevent the injection. The parameter requested is the Pod in the request, and result is the Pod
// that Inject returned. Neither Pod is modified.
func Warnings(requested, result *corev1.Pod) (all []string) {
	if kind, value := injectOf(requested); value != "" && value != "true" && value != "false" {
		all = append(all, fmt.Sprintf("%s %s: %.100q is ignored: want true or false", kind, annotation.SidecarInject.Name,
			value))
	}
	for _, name := range sorted(requested.Annotations) {
		if check := doubtful[name]; check != nil {
			if err := check(requested.Annotations[name]); err != nil {
				all = append(all, fmt.Sprintf("annotation %s: %v: the proxy will not start", name, err))
			}
		}
	}
	for _, one := range normal.OfPod(requested.Annotations, requested.Labels) {
		all = append(all, one.Field+": "+one.Message+one.Analyzer.Suffix())
	}
	if was, _ := scrapeAnnotations(requested); was.Port != "" && isPort(was.Port) != nil {
		all = append(all, fmt.Sprintf("annotation prometheus.io/port: %.100q is no port: metrics of the application are not merged", was.Port))
	}
	_, again := requested.Annotations[statusAnnotation]
	if own := container(ProxyContainer, requested); own != nil && !again && sharesUser(own, requested) {
		all = append(all, fmt.Sprintf(
			"container %s: user %d is that of all containers of the Pod: the proxy has the user of its template instead",
			ProxyContainer, *own.SecurityContext.RunAsUser))
	}
	for _, found := range bypass.Of(specOf(result)) {
		all = append(all, found.String())
	}
	return all
}

// specOf returns the parts of a Pod's spec that decide which traffic bypasses the proxy.
func specOf(pod *corev1.Pod) bypass.Spec {
	s := bypass.Spec{HostNetwork: pod.Spec.HostNetwork}
	if all := pod.Spec.SecurityContext; all != nil {
		s.SecurityContext = bypass.User{RunAsUser: all.RunAsUser, RunAsGroup: all.RunAsGroup}
	}
	convert := func(list []corev1.Container) (out []bypass.Container) {
		for i := range list {
			c := bypass.Container{Name: list[i].Name, Image: list[i].Image, Args: list[i].Args}
			if list[i].RestartPolicy != nil {
				c.RestartPolicy = string(*list[i].RestartPolicy)
			}
			if own := list[i].SecurityContext; own != nil {
				c.SecurityContext = bypass.User{RunAsUser: own.RunAsUser, RunAsGroup: own.RunAsGroup}
			}
			out = append(out, c)
		}
		return out
	}
	s.InitContainers, s.Containers = convert(pod.Spec.InitContainers), convert(pod.Spec.Containers)
	return s
}

// envoyLevels are the levels of Envoy's --log-level.
var envoyLevels = []string{"trace", "debug", "info", "warning", "warn", "error", "critical", "off"}

func isEnvoyLevel(v string) error {
	if !slices.Contains(envoyLevels, v) {
		return fmt.Errorf("Envoy has no log level %.100q, only %s", v, strings.Join(envoyLevels, ", "))
	}
	return nil
}

// isEnvoyLevels checks a list of COMPONENT:LEVEL, separated by commas. Empty elements are valid.
func isEnvoyLevels(v string) error {
	for part := range strings.SplitSeq(v, ",") {
		component, level, _ := strings.Cut(part, ":")
		if part != "" && (component == "" || isEnvoyLevel(level) != nil) {
			return fmt.Errorf("%.100q: want COMPONENT:LEVEL, with one of the levels %s", v, strings.Join(envoyLevels, ", "))
		}
	}
	return nil
}
