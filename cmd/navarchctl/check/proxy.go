package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// behindProxy is the maximum time that a proxy may take to acknowledge a version.
const behindProxy = time.Minute

// Proxy contains the state of one proxy, as replicas of the control plane report it. All texts may be untrusted.
type Proxy struct {
	Name     string   // name.namespace
	Replicas []string // replicas that the proxy is connected to
	Missing  []string // replicas without an answer; the proxy may be connected to them too
	// Behind lists the resource types with versions that the proxy has not acknowledged. Since is the time of the
	// first change that the proxy has not acknowledged. Since is zero if the time is not known, or if Behind is empty.
	Behind []string
	Since  time.Time
	// Refused lists the resources that the proxy refused. Withheld lists the resources that the control plane does
	// not send to the proxy, because several proxies refused them. Each text contains the reason.
	Refused, Withheld []string
	// Errors are the errors of objects in the proxy's namespace.
	Errors []string
}

// OfProxy returns the results of the checks of one proxy at the time now. For a proxy without a connection it returns
// one result: Unknown if p.Missing is not empty, and otherwise Failure. For a connected proxy it returns five results,
// and p.Missing has no effect. It sorts p.Refused and p.Withheld in place, and does not escape texts.
func OfProxy(p Proxy, now time.Time) (all []Result) {
	add := func(name Name, figure string, status Status, found, do string) {
		all = append(all, name.of("proxy "+p.Name).at(figure).result("", status, found, do))
	}
	switch n := len(p.Replicas); {
	case n == 0 && len(p.Missing) > 0:
		add(NameConnected, "unknown", Unknown, "not every replica answers: "+some(p.Missing), "ask again once these replicas are ready")
		return all
	case n == 0:
		add(NameConnected, "0 replicas", Failure, "it is connected to no replica", "see the log of its agent, and whether the Pod runs")
		return all
	case n > 1:
		add(NameConnected, strconv.Itoa(n)+" replicas", Warning, "it is connected to "+some(p.Replicas),
			"wait a minute: an old stream ends by itself; if this warning stays, two proxies use one name")
	default:
		add(NameConnected, "1 replica", OK, "connected to "+p.Replicas[0], "")
	}
	age := now.Sub(p.Since).Round(time.Second)
	switch {
	case len(p.Behind) == 0:
		add(NameInSync, "in sync", OK, "it has the newest version of everything", "")
	case p.Since.IsZero():
		add(NameInSync, "behind", Warning, "it has not acknowledged "+strings.Join(p.Behind, ", "), "look again in a minute")
	case age > behindProxy:
		add(NameInSync, age.String(), Failure, fmt.Sprintf("it has not acknowledged %s for %s", strings.Join(p.Behind, ", "), age),
			"see the log of the proxy: it hangs, warms a cluster, or its connection is slow")
	default:
		add(NameInSync, age.String(), OK, "something is on its way: "+strings.Join(p.Behind, ", "), "")
	}
	resources(add, NameRefused, p.Refused, "it refused nothing", "mend the objects that made these resources (navarchctl ps NAME names them)")
	resources(add, NameWithheld, p.Withheld, "nothing is withheld",
		"mend the objects that made these resources: several proxies refused the resources")
	if n := len(p.Errors); n > 0 {
		add(NameProxyObjects, strconv.Itoa(n), Warning, some(p.Errors), "mend these objects of its namespace: they do not apply")
	} else {
		add(NameProxyObjects, "0", OK, "all objects of its namespace apply", "")
	}
	return all
}

// resources adds the result for a list that should be empty. A non-empty list is a failure. The list is sorted in
// place.
func resources(add func(Name, string, Status, string, string), name Name, found []string, fine, do string) {
	if len(found) == 0 {
		add(name, "0", OK, fine, "")
		return
	}
	slices.Sort(found)
	add(name, strconv.Itoa(len(found)), Failure, some(found), do)
}
