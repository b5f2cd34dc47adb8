package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"istio.io/api/annotation"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/scan"
	"navarch.io/navarch/store/scrape"
)

// checked maps names of annotations to the checks of their values. A Pod with an invalid value is refused, because
// values become traffic redirection rules or fields of the Pod (istio: pkg/kube/inject/validate.go).
var checked = map[string]func(string) error{
	annotation.ProxyConfig.Name:                               isLight,
	annotation.SidecarInterceptionMode.Name:                   isMode,
	annotation.SidecarStatusPort.Name:                         isPort,
	annotation.SidecarStatusReadinessInitialDelaySeconds.Name: isSeconds,
	annotation.SidecarStatusReadinessPeriodSeconds.Name:       isSeconds,
	annotation.SidecarStatusReadinessFailureThreshold.Name:    isSeconds,
	annotation.SidecarTrafficIncludeOutboundIPRanges.Name:     orAll(isRanges),
	annotation.SidecarTrafficExcludeOutboundIPRanges.Name:     isRanges,
	annotation.SidecarTrafficIncludeInboundPorts.Name:         orAll(isPorts),
	annotation.SidecarTrafficExcludeInboundPorts.Name:         isPorts,
	annotation.SidecarTrafficIncludeOutboundPorts.Name:        orAll(isPorts),
	annotation.SidecarTrafficExcludeOutboundPorts.Name:        isPorts,
	annotation.SidecarTrafficExcludeInterfaces.Name:           isInterfaces,
	annotation.SidecarTrafficKubevirtInterfaces.Name:          isInterfaces,
	annotation.IoIstioRerouteVirtualInterfaces.Name:           isInterfaces,
	annotation.SidecarProxyCPU.Name:                           isQuantity,
	annotation.SidecarProxyCPULimit.Name:                      isQuantity,
	annotation.SidecarProxyMemory.Name:                        isQuantity,
	annotation.SidecarProxyMemoryLimit.Name:                   isQuantity,
	annotation.SidecarUserVolume.Name:                         isObjects[corev1.Volume],
	annotation.SidecarUserVolumeMount.Name:                    isObjects[corev1.VolumeMount],
	annotation.SidecarNativeSidecar.Name:                      isBool,
	annotation.SidecarAgentLogLevel.Name:                      isLevel,
	annotation.PrometheusMergeMetrics.Name:                    isBool,
	scrape.Annotation:                                         func(v string) error { _, err := scrape.Parse(v); return err },
	annotation.SidecarRewriteAppHTTPProbers.Name:              isBool,
}

// checkAnnotations returns the errors of all invalid annotations, in the order of their names. It returns nil if all
// annotations are valid.
func checkAnnotations(annotations map[string]string) error {
	var bad []error
	for _, name := range sorted(annotations) {
		if err := CheckAnnotation(name, annotations[name]); err != nil {
			bad = append(bad, fmt.Errorf("annotation %s: %w", name, err))
		}
	}
	return errors.Join(bad...)
}

// CheckAnnotation returns an error if the form of the value is invalid for the named annotation. Injection refuses a
// Pod with such a value. The error states the reason without the annotation's name. The result nil does not mean that
// injection accepts the Pod, because some annotations have no check here, and proxy.istio.io/config is decoded later.
func CheckAnnotation(name, value string) error {
	if check := checked[name]; check != nil {
		return check(value)
	}
	return nil
}

func orAll(check func(string) error) func(string) error {
	return func(v string) error {
		if v == "*" {
			return nil
		}
		return check(v)
	}
}

// Bounds of a ProxyConfig in an annotation. They are checked before the text is decoded.
const (
	maxConfigText   = 32 << 10 // bytes
	maxConfigValues = 8192
)

func isLight(v string) error {
	if len(v) > maxConfigText {
		return fmt.Errorf("it has %d bytes, at most %d are read", len(v), maxConfigText)
	}
	return scan.YAML([]byte(v), maxConfigValues)
}

func isMode(v string) error {
	switch v {
	case "REDIRECT", "TPROXY", "NONE":
		return nil
	default:
		return fmt.Errorf("%.100q: want REDIRECT, TPROXY or NONE", v)
	}
}

func isBool(v string) error {
	if _, err := strconv.ParseBool(v); err != nil {
		return fmt.Errorf("%.100q: want true or false", v)
	}
	return nil
}

// isLevel checks a log level, because navarch-agent and pilot-agent exit with an unknown one.
func isLevel(v string) error {
	_, _, err := obs.Level(v)
	return err
}

func isSeconds(v string) error {
	if _, err := strconv.ParseUint(v, 10, 31); err != nil {
		return fmt.Errorf("%.100q: want a number, 0 or more", v)
	}
	return nil
}

func isPort(v string) error {
	if _, err := strconv.ParseUint(strings.TrimSpace(v), 10, 16); err != nil {
		return fmt.Errorf("%.100q: want a port", v)
	}
	return nil
}

func isPorts(v string) error {
	if strings.TrimSpace(v) == "" {
		return nil
	}
	for p := range strings.SplitSeq(v, ",") {
		if err := isPort(p); err != nil {
			return err
		}
	}
	return nil
}

func isRanges(v string) error {
	if v == "" {
		return nil
	}
	for cidr := range strings.SplitSeq(v, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(cidr)); err != nil || p.Addr().Is4In6() {
			return fmt.Errorf("%.100q: want CIDR ranges, as 10.0.0.0/8,fd00::/8", cidr)
		}
	}
	return nil
}

// isQuantity checks a quantity. An empty value is valid and has no effect.
func isQuantity(v string) error {
	if q, err := resource.ParseQuantity(v); v != "" && (err != nil || q.Sign() < 0) {
		return fmt.Errorf("%.100q: want a quantity, as 100m or 128Mi", v)
	}
	return nil
}

// interfaceName matches names of network interfaces. The kernel also allows characters that are special in a shell, but
// this expression does not (net/core/dev.c, dev_valid_name).
var interfaceName = regexp.MustCompile(`^[\w.@+-]{1,15}$`)

func isInterfaces(v string) error {
	for name := range strings.SplitSeq(v, ",") {
		if name = strings.TrimSpace(name); name != "" && !interfaceName.MatchString(name) {
			return fmt.Errorf("%.100q: want names of network interfaces, as eth0,net1", v)
		}
	}
	return nil
}

// isObjects checks a JSON list of objects of one type, or a JSON map of such objects by name. An empty text is valid.
func isObjects[T any](v string) error {
	var list []*T
	byName := map[string]*T{}
	var err error
	switch text := strings.TrimSpace(v); {
	case text == "":
		return nil
	case text[0] == '[':
		err = json.Unmarshal([]byte(text), &list)
	default:
		err = json.Unmarshal([]byte(text), &byName)
	}
	if err == nil && (slices.Contains(list, nil) || slices.Contains(slices.Collect(maps.Values(byName)), nil)) {
		err = errors.New("an object is null")
	}
	if err != nil {
		return fmt.Errorf(`%.100q: want JSON objects by name, as {"NAME": {...}}, or in a list: %w`, v, err)
	}
	return nil
}
