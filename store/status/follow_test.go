package status

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"navarch.io/navarch/store/apiserver/listwatch"
)

// seenNames is a Seen that records names.
type seenNames struct{ names map[string]bool }

func (s seenNames) Replace(all map[Key]Found[corev1.ConfigMap]) {}

func (s seenNames) Observe(k Key, f Found[corev1.ConfigMap]) { s.names[k.Name] = true }

// A watch without any event or bookmark is reopened within listwatch.Silence, long before the next list, and delivers
// the changes since.
// Promise: security-limits.md#api-servers-of-other-clusters
func TestSilentWatchIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watches, lists int
		seen := seenNames{map[string]bool{}}
		plain := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				lists++
				return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				w := watch.NewRaceFreeFake()
				if o.SendInitialEvents != nil {
					w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}})
				} else if watches++; o.ResourceVersion == "7" {
					w.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later", ResourceVersion: "8"}})
				}
				return w, nil
			},
		}
		r := receiver[corev1.ConfigMap]{"configmaps", seen, func(error) {}, func(o any) (Key, Found[corev1.ConfigMap], bool) {
			m := o.(*corev1.ConfigMap)
			return Key{m.Namespace, m.Name}, found(m), true
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.session(ctx, plain, &corev1.ConfigMap{})
		}()
		time.Sleep(listwatch.Silence + 10*time.Second)
		synctest.Wait()
		if watches != 1 || !seen.names["later"] || lists != 0 {
			t.Errorf("after %v: %d watches were opened again, %d lists, seen %v", listwatch.Silence, watches, lists, seen.names)
		}
		cancel()
		<-done
	})
}
