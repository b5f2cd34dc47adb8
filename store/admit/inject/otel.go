package inject

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otelResourceAttributes returns the service attributes of a Pod, for the proxy's variable OTEL_RESOURCE_ATTRIBUTES.
// They follow OpenTelemetry's conventions for Kubernetes
// (https://opentelemetry.io/docs/specs/semconv/non-normative/k8s-attributes/#service-attributes). The result is empty
// unless a tracing provider of the mesh has serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS.
//
// The arguments after mesh describe the Pod. They differ between releases of Istio's templates, so their types decide
// their meaning. An ObjectMeta has the annotations, the labels and the namespace. Of two maps, the first has the
// annotations and the second the labels. A string is the namespace. A PodSpec or a slice has the containers. An
// argument of another type, and missing annotations or labels, are errors.
func otelResourceAttributes(mesh *meshv1alpha1.MeshConfig, of ...any) (string, error) {
	if !describesServices(mesh) {
		return "", nil
	}
	var maps []map[string]string
	var namespace string
	var containers []corev1.Container
	for _, v := range of {
		switch v := v.(type) {
		case map[string]string:
			maps = append(maps, v)
		case metav1.ObjectMeta:
			maps, namespace = append(maps, v.Annotations, v.Labels), cmp.Or(namespace, v.Namespace)
		case string:
			namespace = v
		case []corev1.Container:
			containers = v
		case corev1.PodSpec:
			containers = v.Containers
		default:
			return "", fmt.Errorf("an argument of type %T does not describe a Pod's service", v)
		}
	}
	if len(maps) != 2 {
		return "", fmt.Errorf("want annotations and labels, got %d maps", len(maps))
	}
	return serviceAttributes(maps[0], maps[1], namespace, containers), nil
}

func describesServices(mesh *meshv1alpha1.MeshConfig) bool {
	return slices.ContainsFunc(mesh.GetExtensionProviders(), func(p *meshv1alpha1.MeshConfig_ExtensionProvider) bool {
		return p.GetOpentelemetry().GetServiceAttributeEnrichment() == meshv1alpha1.MeshConfig_ExtensionProvider_OTEL_SEMANTIC_CONVENTIONS
	})
}

// serviceAttributes returns service.namespace, service.version and service.instance.id as NAME=VALUE, separated by
// commas. Unknown attributes are omitted. An annotation resource.opentelemetry.io/NAME takes precedence over the
// derived value. The version comes from a label, or else from the image if the Pod has only one container besides the
// proxy. The kubelet replaces the text $(POD_NAME) in the result.
func serviceAttributes(annotations, labels map[string]string, namespace string, containers []corev1.Container) string {
	containers = slices.DeleteFunc(slices.Clone(containers), func(c corev1.Container) bool { return c.Name == ProxyContainer })
	image, instance := "", []string{namespace, "$(POD_NAME)"}
	if len(containers) == 1 {
		image, instance = versionOfImage(containers[0].Image), append(instance, containers[0].Name)
	}
	var all []string
	for _, one := range []struct{ name, value string }{
		{"service.namespace", namespace},
		{"service.version", cmp.Or(labels["app.kubernetes.io/version"], image)},
		{"service.instance.id", strings.TrimPrefix(strings.Join(instance, "."), ".")},
	} {
		if value := cmp.Or(annotations["resource.opentelemetry.io/"+one.name], one.value); value != "" {
			all = append(all, one.name+"="+attributeText.Replace(value))
		}
	}
	return strings.Join(all, ",")
}

// attributeText encodes the characters that would end a value in the list of attributes
// (https://www.w3.org/TR/baggage/#value).
var attributeText = strings.NewReplacer("%", "%25", ",", "%2C", ";", "%3B", "=", "%3D", `"`, "%22", `\`, "%5C", " ", "%20", "\t", "%09",
	"\n", "%0A")

// versionOfImage returns TAG, DIGEST, or TAG@DIGEST of an image, or "" if the image has neither.
func versionOfImage(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	tag := ""
	if at := strings.LastIndexAny(name, ":/"); at >= 0 && name[at] == ':' {
		tag = name[at+1:]
	}
	return strings.Trim(tag+"@"+digest, "@")
}
