package inject

import (
	corev1 "k8s.io/api/core/v1"
)

// order sorts the containers into the order in which they must start.
//
// As a sidecar container, the proxy comes first, after the containers that prepare it, so that init containers of the
// application are in the mesh. Otherwise redirection comes after all other init containers, which would find no proxy
// for their traffic. The container that checks redirection is the first, so that nothing runs without redirection. The
// proxy is the last container, so that kubectl exec selects the application, unless the application is held until the
// proxy has started.
func order(pod *corev1.Pod, hold bool) {
	if hold {
		first(pod.Spec.Containers, ProxyContainer)
	} else {
		last(pod.Spec.Containers, ProxyContainer)
	}
	init := pod.Spec.InitContainers
	if index(init, ProxyContainer) >= 0 {
		for _, name := range []string{coreDumpContainer, ProxyContainer, validationContainer, initContainer} {
			first(init, name)
		}
		return
	}
	first(init, validationContainer)
	last(init, initContainer)
	last(init, coreDumpContainer)
}

func first(list []corev1.Container, name string) {
	if i := index(list, name); i > 0 {
		c := list[i]
		copy(list[1:i+1], list[:i])
		list[0] = c
	}
}

func last(list []corev1.Container, name string) {
	if i := index(list, name); i >= 0 {
		c := list[i]
		copy(list[i:], list[i+1:])
		list[len(list)-1] = c
	}
}
