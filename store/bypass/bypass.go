// Package bypass finds containers whose traffic is not redirected to the proxy of their Pod, because they run as the
// proxy's user or group. The redirection exempts traffic of this user and group, in all containers of the Pod.
//
// Owns: the rule by which these containers are found.
// Reads: the given fields of a Pod's spec.
// Never: reads anything from the cluster.
package bypass

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of the containers that injection adds, and the image of the proxy's container before injection.
const (
	proxy      = "istio-proxy"
	redirector = "istio-init"
	validator  = "istio-validation"
	autoImage  = "auto"

	usual = 1337 // the proxy's default user and group
)

// Spec contains the fields of a Pod's spec that Of reads, under their names in JSON.
type Spec struct {
	HostNetwork     bool        `json:"hostNetwork"`
	SecurityContext User        `json:"securityContext"`
	InitContainers  []Container `json:"initContainers"`
	Containers      []Container `json:"containers"`
}

// Container contains the fields of a container that Of reads, under their names in JSON.
type Container struct {
	Name            string   `json:"name"`
	Image           string   `json:"image"`
	Args            []string `json:"args"`
	RestartPolicy   string   `json:"restartPolicy"`
	SecurityContext User     `json:"securityContext"`
}

// User is the user and group of a container, or of all containers of a Pod. For a field that is nil in a container, the
// field of the Pod counts. If both are nil, the user or group of the container's image counts.
type User struct {
	RunAsUser  *int64 `json:"runAsUser"`
	RunAsGroup *int64 `json:"runAsGroup"`
}

// Found is a container whose traffic is not redirected to the proxy.
type Found struct {
	Container string // the container's name
	Who       string // the user or group of the container, such as "user 1337" or "group 1337"
}

// String returns a sentence for the author of the Pod.
func (f Found) String() string {
	return fmt.Sprintf("container %s runs as %s, which is the proxy's: redirection lets its traffic pass, and what it sends goes past the "+
		"proxy in plain text", f.Container, f.Who)
}

// Of returns the containers that run as the proxy's user or group. Their traffic is not redirected to the proxy.
// Containers precede init containers, and both are in the order of the spec. The proxy itself is left out. A container
// with both the proxy's user and group is returned once, for the user.
//
// Init containers that end before the containers start are left out. They often have the proxy's user on purpose, to
// reach the network before the proxy runs. Of does not know a user or group that only the image states. A Pod that is
// not injected yet is treated as if it were injected.
//
// The result is nil if no container is found, and for a Pod in the host's network. It is also nil for a Pod with an
// injected proxy but without istio-init and istio-validation, because its traffic is not redirected.
func Of(s Spec) (all []Found) {
	if s.HostNetwork {
		return nil
	}
	users, groups := s.passing()
	for _, c := range slices.Concat(s.Containers, slices.DeleteFunc(slices.Clone(s.InitContainers), ends)) {
		if c.Name == proxy {
			continue
		}
		user, group := or(c.SecurityContext.RunAsUser, s.SecurityContext.RunAsUser),
			or(c.SecurityContext.RunAsGroup, s.SecurityContext.RunAsGroup)
		switch {
		case user != nil && slices.Contains(users, strconv.FormatInt(*user, 10)):
			all = append(all, Found{c.Name, fmt.Sprintf("user %d", *user)})
		case group != nil && slices.Contains(groups, strconv.FormatInt(*group, 10)):
			all = append(all, Found{c.Name, fmt.Sprintf("group %d", *group)})
		}
	}
	return all
}

// ends reports whether an init container ends before the containers start.
func ends(c Container) bool { return c.RestartPolicy != "Always" }

// passing lists the users and groups whose traffic is not redirected. If the Pod has no redirection, both lists are
// nil.
func (s *Spec) passing() (users, groups []string) {
	usuals := []string{strconv.Itoa(usual)}
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.Name == redirector || c.Name == validator {
			if users = c.list("-u"); users == nil {
				users = usuals
			}
			if groups = c.list("-g"); groups == nil {
				groups = users // the rule of istio-iptables
			}
			return users, groups
		}
	}
	for _, c := range slices.Concat(s.Containers, s.InitContainers) {
		if c.Name != proxy {
			continue
		}
		if c.Image != autoImage {
			return nil, nil
		}
		if user := c.SecurityContext.RunAsUser; user != nil {
			usuals = []string{strconv.FormatInt(*user, 10)}
		}
	}
	return usuals, usuals
}

// list returns the value of an argument, split at commas. It returns nil if the argument is missing or empty.
func (c *Container) list(flag string) []string {
	at := slices.Index(c.Args, flag)
	if at < 0 || at+1 >= len(c.Args) || c.Args[at+1] == "" {
		return nil
	}
	return strings.Split(c.Args[at+1], ",")
}

// or returns its first argument, or the second one if the first is nil.
func or(own, all *int64) *int64 {
	if own != nil {
		return own
	}
	return all
}
