package podenv

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field returns a field of a Pod for the downward API. status is the newest one that the node knows. An absent label or
// annotation is empty. The error reports that the path is not supported.
func Field(pod *corev1.Pod, status corev1.PodStatus, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return status.HostIP, nil
	case "status.hostIPs":
		ips := make([]string, len(status.HostIPs))
		for i, ip := range status.HostIPs {
			ips[i] = ip.IP
		}
		return strings.Join(ips, ","), nil
	case "status.podIP":
		return status.PodIP, nil
	case "status.podIPs":
		ips := make([]string, len(status.PodIPs))
		for i, ip := range status.PodIPs {
			ips[i] = ip.IP
		}
		return strings.Join(ips, ","), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", path)
}

// subscript splits metadata.labels['key'].
func subscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return name, strings.TrimSuffix(rest, "']"), true
}

// lines formats a map as the kubelet writes it into a file.
func lines(m map[string]string) string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s=%q", name, m[name])
	}
	return b.String()
}

// Capacity is the limit of containers without limits, as nodes report it.
var Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"), corev1.ResourceMemory: resource.MustParse("32Gi"),
	corev1.ResourcePods: resource.MustParse("200"), corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}

// Resource returns a request or a limit of a container (the selector's, if it names one), in units of the divisor,
// rounded up. An absent request is 0, and an absent limit is that of Capacity. The error names a container or resource
// that does not exist.
func Resource(pod *corev1.Pod, c *corev1.Container, r *corev1.ResourceFieldSelector) (string, error) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if r.ContainerName == list[i].Name {
				c = &list[i]
			}
		}
	}
	if c == nil {
		return "", fmt.Errorf("resource %s: no container %q", r.Resource, r.ContainerName)
	}
	kind, name, _ := strings.Cut(r.Resource, ".")
	list := c.Resources.Limits
	if kind == "requests" {
		list = c.Resources.Requests
	}
	q, ok := list[corev1.ResourceName(name)]
	if !ok && kind == "limits" {
		q, ok = Capacity[corev1.ResourceName(name)]
	}
	if !ok && kind != "requests" {
		return "", fmt.Errorf("unsupported resource: %s", r.Resource)
	}
	divisor := r.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == string(corev1.ResourceCPU) {
		return ceil(q.MilliValue(), divisor.MilliValue()), nil
	}
	return ceil(q.Value(), divisor.Value()), nil
}

func ceil(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}
