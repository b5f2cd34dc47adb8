// Package bypass finds the containers of a Pod whose traffic goes past its proxy: redirection lets pass what the proxy's user and group send, whoever
// runs as them (leaf).
//
// Owns: the rule.  Reads: the part of a Pod's spec that it is given.  Never: anything of the cluster.
package bypass

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names of the containers of injection, and the image of a proxy that is yet to be injected.
const (
	proxy      = "istio-proxy"
	redirector = "istio-init"
	validator  = "istio-validation"
	autoImage  = "auto"

	usual = 1337 // the proxy's user and group where nothing else is said
)

// Spec is the part of a Pod's spec that decides whose traffic passes the proxy, as JSON.
type Spec struct {
	HostNetwork     bool        `json:"hostNetwork"`
	SecurityContext User        `json:"securityContext"`
	InitContainers  []Container `json:"initContainers"`
	Containers      []Container `json:"containers"`
}

// Container is that part of a container.
type Container struct {
	Name            string   `json:"name"`
	Image           string   `json:"image"`
	Args            []string `json:"args"`
	RestartPolicy   string   `json:"restartPolicy"`
	SecurityContext User     `json:"securityContext"`
}

// User is whom a container, or all of a Pod, runs as; nil: whom the image says.
type User struct {
	RunAsUser  *int64 `json:"runAsUser"`
	RunAsGroup *int64 `json:"runAsGroup"`
}

// Found is a container whose traffic goes past the proxy.
type Found struct {
	Container string
	Who       string // "user 1337"
}

// String is the sentence for who wrote the Pod.
func (f Found) String() string {
	return fmt.Sprintf("container %s runs as %s, which is the proxy's: redirection lets its traffic pass, and what it sends goes past the "+
		"proxy in plain text", f.Container, f.Who)
}

// Of finds the containers that go on: those that end before the others start are often given the proxy's user on purpose, to reach the network before it
// runs. A Pod that is not injected yet is looked at as if it were. A Pod with a proxy, and without one of the containers that redirect or verify that, is
// not redirected.
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

// ends says whether an init container ends before the others start.
func ends(c Container) bool { return c.RestartPolicy != "Always" }

// passing lists the users and groups whose traffic is not redirected.
func (s *Spec) passing() (users, groups []string) {
	usuals := []string{strconv.Itoa(usual)}
	for i := range s.InitContainers {
		if c := &s.InitContainers[i]; c.Name == redirector || c.Name == validator {
			if users = c.list("-u"); users == nil {
				users = usuals
			}
			if groups = c.list("-g"); groups == nil {
				groups = users // as istio-iptables
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

// list is the value of an argument: words with commas between them.
func (c *Container) list(flag string) []string {
	at := slices.Index(c.Args, flag)
	if at < 0 || at+1 >= len(c.Args) || c.Args[at+1] == "" {
		return nil
	}
	return strings.Split(c.Args[at+1], ",")
}

func or(own, all *int64) *int64 {
	if own != nil {
		return own
	}
	return all
}
