package migrate

// carry is a rule that translates a setting of istiod into values of Navarch's chart.
type carry struct {
	// to lists the paths, in the chart's values, to which the setting's value is written. If the setting is below the
	// rule's key, the rest of the setting's path is appended to each of these paths.
	to []string
	// The function as converts the value, and returns false if the value has no equivalent. If as is nil, the value is
	// copied.
	as func(any) (any, bool)
}

func to(paths ...string) carry { return carry{to: paths} }

// carried maps the kind and key of a setting to a rule. A rule also applies to settings below its key. If several rules
// apply, the rule with the longest key is used. An environment variable that is ActedOn and has no rule is copied to
// the chart's value env. If Kubernetes fills in the variable, it is copied to envVarFrom.
var carried = map[Sort]map[string]carry{
	Value: {
		"affinity": to("affinity"), "tolerations": to("tolerations"), "nodeSelector": to("nodeSelector"),
		"global.defaultTolerations": to("tolerations"), "global.defaultNodeSelector": to("nodeSelector"),
		"global.priorityClassName": to("priorityClassName"),
		"podAnnotations":           to("podAnnotations"), "podLabels": to("podLabels"),
		"serviceAnnotations": to("serviceAnnotations"), "serviceAccountAnnotations": to("serviceAccountAnnotations"),
		"volumes": to("volumes"), "volumeMounts": to("volumeMounts"), "initContainers": to("initContainers"),
		"revision": to("revision"), "revisionTags": to("revisionTags"),
		"ipFamilyPolicy": to("service.ipFamilyPolicy"),
		"cni.enabled":    to("injection.values.pilot.cni.enabled"), "cni.provider": to("injection.values.pilot.cni.provider"),
		"meshConfig": to("meshConfig"), "meshConfig.trustDomain": to("trustDomain"), "global.meshNetworks": to("meshNetworks"),
		"sidecarInjectorWebhook.neverInjectSelector":       to("injection.neverInjectSelector"),
		"sidecarInjectorWebhook.alwaysInjectSelector":      to("injection.alwaysInjectSelector"),
		"sidecarInjectorWebhook.injectedAnnotations":       to("injection.injectedAnnotations"),
		"sidecarInjectorWebhook.enableNamespacesByDefault": {[]string{"injection.everywhere"}, truth},
		"sidecarInjectorWebhook.rewriteAppHTTPProbe":       {[]string{"injection.values.sidecarInjectorWebhook.rewriteAppHTTPProbe"}, truth},
		"sidecarInjectorWebhook.templates":                 to("injection.templates"),
		"sidecarInjectorWebhook.defaultTemplates":          to("injection.defaultTemplates"),
		"istiodRemote.injectionPath":                       to("injection.path"),
		"global.imagePullPolicy":                           to("imagePullPolicy", "injection.values.global.imagePullPolicy"),
		"global.imagePullSecrets":                          to("imagePullSecrets", "injection.values.global.imagePullSecrets"),
		"global.logging.level":                             to("flags.log-level", "injection.values.global.logging.level"),
		"global.operatorManageWebhooks":                    {[]string{"flags.write-webhook-configurations"}, untruth},
		"global.proxy":                                     to("injection.values.global.proxy"),
		"global.proxy.autoInject":                          to("injection.policy"),
		"global.proxy.clusterDomain":                       to("clusterDomain"),
		"global.configValidation":                          {[]string{"validation.enabled"}, truth},
		"global.meshID":                                    to("injection.values.global.meshID"),
		"global.multiCluster.clusterName":                  to("clusterName"),
		"global.network":                                   to("network"),
		"global.networkPolicy.enabled":                     {[]string{"networkPolicies"}, truth},
		"global.sds.token.aud":                             to("env.TOKEN_AUDIENCES", "injection.values.global.sds.token.aud"),
		"base.enableIstioConfigCRDs":                       {[]string{"crds.install"}, truth},
	},
	Environment: {
		"REVISION": to("revision"), "CLUSTER_ID": to("clusterName"),
		"SHARED_MESH_CONFIG": to("sharedMeshConfig"), "ISTIOD_CUSTOM_HOST": to("customHost"),
		"PILOT_ENABLE_STATUS":                          {[]string{"status"}, truth},
		"PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION": {[]string{"machines"}, truth},
		"PILOT_ENABLE_IP_AUTOALLOCATE":                 {[]string{"automaticAddresses"}, truth},
	},
	Flag: {
		"log_output_level": to("flags.log-level"), "domain": to("clusterDomain"), "clusterID": to("clusterName"),
		"shutdownDuration": {[]string{"shutdownSeconds"}, seconds},
		"grpcAddr":         {[]string{"plaintext"}, plaintext},
	},
}
