package debug

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Proxies that have left are remembered for a time and within bounds; one namespace displaces no other.
func TestDepartures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Proxies{}
		p.left.add(Left{Node: "first", Namespace: "pay", At: time.Now()})
		for i := range 2 * mostLeft {
			p.left.add(Left{Node: fmt.Sprint(i), Namespace: "shop", At: time.Now()})
		}
		all := p.Departed(func(string) bool { return true })
		if len(all) != mostOfSpace+1 || all[0].Node != "first" || all[len(all)-1].Node != fmt.Sprint(2*mostLeft-1) {
			t.Errorf("%d are remembered, the first %+v", len(all), all[0])
		}
		if pays := p.Departed(func(namespace string) bool { return namespace == "pay" }); len(pays) != 1 {
			t.Errorf("a tenant sees %+v", pays)
		}
		for i := range 2 * mostLeft {
			p.left.add(Left{Node: fmt.Sprint(i), Namespace: fmt.Sprint(i), At: time.Now()})
		}
		if n := len(p.Departed(func(string) bool { return true })); n != mostLeft {
			t.Errorf("%d are remembered of %d namespaces", n, mostLeft)
		}
		time.Sleep(LeftFor + time.Second)
		if n := len(p.Departed(func(string) bool { return true })); n != 0 || len(p.left.spaces) != 0 {
			t.Errorf("%d are remembered later", n)
		}
	})
}
