package normal

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// irrelevant maps an API group to its kinds that do not affect a mesh. Manifest files often contain objects of these
// kinds, so they cause no warning. Objects of any other kind that is not read cause a warning. Ingress and Endpoints
// are not listed here, because users may expect them to affect the mesh.
var irrelevant = map[string]string{
	"": "Binding Event LimitRange PersistentVolume PersistentVolumeClaim PodTemplate ReplicationController ResourceQuota",
	"admissionregistration.k8s.io": "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration " +
		"ValidatingAdmissionPolicy " +
		"ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration",
	"apiextensions.k8s.io":         "CustomResourceDefinition",
	"apiregistration.k8s.io":       "APIService",
	"apps":                         "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
	"autoscaling":                  "HorizontalPodAutoscaler",
	"batch":                        "CronJob Job",
	"certificates.k8s.io":          "CertificateSigningRequest ClusterTrustBundle",
	"coordination.k8s.io":          "Lease",
	"events.k8s.io":                "Event",
	"flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
	"kustomize.config.k8s.io":      "Component Kustomization",
	"networking.k8s.io":            "IngressClass IPAddress NetworkPolicy ServiceCIDR",
	"node.k8s.io":                  "RuntimeClass",
	"policy":                       "PodDisruptionBudget",
	"resource.k8s.io":              "DeviceClass ResourceClaim ResourceClaimTemplate ResourceSlice",
	"scheduling.k8s.io":            "PriorityClass",
	"storage.k8s.io":               "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
}

// unknown warns that objects of the kind of id are not read. It does not warn of kinds in the map irrelevant.
func (r *report) unknown(id object.ID) {
	switch {
	case slices.Contains(strings.Fields(irrelevant[id.Group]), id.Kind):
	case strings.HasSuffix(id.Group, "istio.io"):
		r.warnf(problem.NotSupported, "", "kind %s of %s is not acted on yet%s", id.Kind, id.Group, meant(id))
	case id.Group == "":
		r.warnf(problem.NotSupported, "", "kind %s of the core group is not acted on: the object is left out", id.Kind)
	default:
		r.warnf(problem.NotSupported, "", "kind %s of %s is not acted on: the object is left out", id.Kind, id.Group)
	}
}

// meant returns the end of a message about an object of an unknown kind. This text states what the author of the object
// may mean. If other API groups have a kind of the same name, it names these groups. If not, it lists the kinds of the
// object's group. The result is empty if the group has no kinds.
func meant(id object.ID) string {
	var groups, all []string
	for k := range kinds {
		if k.kind == id.Kind && k.group != "" {
			groups = append(groups, k.group)
		}
		if k.group == id.Group {
			all = append(all, k.kind)
		}
	}
	slices.Sort(groups)
	slices.Sort(all)
	switch {
	case len(groups) > 0:
		return ": this kind belongs to " + strings.Join(groups, ", ")
	case len(all) > 0:
		return ": the group has " + strings.Join(all, ", ")
	}
	return ""
}

// Unserved explains that an object of Istio's API groups is not read, because of its kind or its version. The result
// named field is "kind" or "apiVersion", and reason is the text for users. Both are empty if the object is read, and
// for objects of other groups.
func Unserved(obj *object.Object) (field, reason string) {
	kind, known := kinds[kindKey{obj.ID.Group, obj.ID.Kind}]
	switch {
	case !strings.HasSuffix(obj.ID.Group, "istio.io") || Served(obj):
		return "", ""
	case known:
		return "apiVersion", unserved(obj, kind.versions)
	}
	return "kind", fmt.Sprintf("kind %s of %s is not known%s", obj.ID.Kind, obj.ID.Group, meant(obj.ID))
}

// unserved returns a message which states that the version of obj is not read. The parameter versions lists the
// versions of the kind that are read.
func unserved(obj *object.Object, versions []string) string {
	return fmt.Sprintf("version %q is not served: want one of %s", obj.Version, strings.Join(versions, ", "))
}
