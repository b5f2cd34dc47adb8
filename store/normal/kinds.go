package normal

import (
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// irrelevant lists, by API group, kinds that do not affect a mesh. Files often contain objects of these kinds. Objects
// of a kind that is neither here nor in the map kinds are reported. Ingress and Endpoints are not listed here, because
// users may expect them to affect the mesh.
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

// unknown reports an object of a kind that is not read, unless the kind is irrelevant.
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

// meant lists the kinds that the author of an object of an unknown kind may mean, as the end of a message: the kind in
// its own group, else the kinds of the object's group; empty: the group has no kinds.
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
		return ": the kind is of " + strings.Join(groups, ", ")
	case len(all) > 0:
		return ": the group has " + strings.Join(all, ", ")
	}
	return ""
}

// Unserved returns the field and the reason for which an object of Istio's groups is not read: its kind or its version.
// Both are empty if the object is read, and for other groups.
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

// unserved returns the reason for which the version of an object is not read.
func unserved(obj *object.Object, versions []string) string {
	return fmt.Sprintf("version %q is not served: want one of %s", obj.Version, strings.Join(versions, ", "))
}
