package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"navarch.io/navarch/cmd/internal/fleetapi"
)

// upgrade checks whether version Config.Upgrade can replace the control plane now. The results of upgrade come after
// those of the other checks.
func (k *checker) upgrade(ctx context.Context) {
	tool := NameUpgradeTool.of("navarchctl").at(k.Tool)
	if k.Tool == k.Upgrade {
		k.add(tool, OK, "it is of the new version, so the limits are those of the new version", "")
	} else {
		k.add(tool, Warning, fmt.Sprintf("this is navarchctl %s, which does not know the requirements of version %s", k.Tool, k.Upgrade),
			"check with the navarchctl of version "+k.Upgrade)
	}
	k.running(ctx)
	k.room()
	k.fleet(ctx)
}

// running checks that all replicas have the same version. If the versions differ, another upgrade is under way.
func (k *checker) running(ctx context.Context) {
	by := map[string][]string{}
	for _, r := range k.processes(everyRole...) {
		var build struct{ Version string }
		status, body, _, err := r.page(ctx, r.Monitoring, "/version?output=json")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("/version: status %d", status)
		}
		if err == nil {
			err = json.Unmarshal(body, &build)
		}
		if err != nil {
			k.add(NameUpgradeVersions.of("versions"), Unknown, r.Name+": "+err.Error(), "see its log")
			return
		}
		by[build.Version] = append(by[build.Version], r.Name)
	}
	versions := sorted(by)
	check := NameUpgradeVersions.of("versions").count(len(versions))
	switch text := strings.Join(versions, ", "); {
	case len(versions) == 0:
		k.add(check.at("unknown"), Unknown, errNoReplica.Error(), "")
	case len(versions) > 1:
		k.add(check, Failure, "several versions run: "+text, "let the upgrade that is under way end, or roll it back (helm rollback)")
	case slices.Contains(versions, k.Upgrade):
		k.add(check, OK, "version "+text+" runs already", "")
	default:
		k.add(check, OK, "version "+text+" runs", "")
	}
}

// room checks that each role has a second ready replica, which serves while the first one is replaced.
func (k *checker) room() {
	var alone []string
	for _, role := range everyRole {
		if n := len(k.processes(role)); n < 2 {
			alone = append(alone, fmt.Sprintf("role %s has %d ready replicas", role, n))
		}
	}
	check := NameUpgradeRoom.of("replicas of each role")
	if len(alone) > 0 {
		k.add(check.at(fmt.Sprintf("%d roles have fewer", len(alone))), Warning, some(alone),
			"raise the chart's replicas for the upgrade: without a second replica, new Pods and changes wait for the new one")
		return
	}
	k.add(check.at("2 or more"), OK, "a second replica serves while one is replaced", "")
}

// fleet checks that all proxies are in sync. A proxy that is out of sync before the upgrade would later look like a
// fault of the upgrade.
func (k *checker) fleet(ctx context.Context) {
	check := NameUpgradeFleet.of("proxies in sync")
	var last error = errNoReplica
	for _, r := range k.processes("xds") {
		var answer fleetapi.Answer[fleetapi.Proxy]
		if last = r.debug(ctx, fleetapi.Root+"proxies?limit=0", &answer); last == nil && answer.Sums == nil {
			last = errors.New("an answer without sums")
		}
		if last != nil {
			continue
		}
		c := answer.Sums.Total
		switch n := c.Behind + c.Refusing; {
		case len(answer.Partial) > 0:
			k.add(check, Unknown, fmt.Sprintf("%d replicas did not answer for their proxies", len(answer.Partial)), "look again once they are ready")
		case n > 0:
			k.add(check.count(n), Warning, fmt.Sprintf("%d proxies are behind and %d refuse something, of %d", c.Behind, c.Refusing, c.Connected()),
				"see navarchctl proxy-status: mend these first; later faults are then those of the upgrade")
		default:
			k.add(check.count(0), OK, fmt.Sprintf("all %d are in sync", c.Connected()), "")
		}
		return
	}
	k.add(check, Unknown, fmt.Sprint(last), "its pages are off with ENABLE_DEBUG_ON_HTTP=false")
}
