package main
import ("testing";"os";"strings";"time";"fmt";"os/exec")
func TestZZ(t *testing.T){
 os.Chdir("../..")
 im,_,err:=image("bin"); if err!=nil {t.Fatal(err)}
 dir,_:=os.MkdirTemp("","interop"); defer os.RemoveAll(dir)
 l,err:=newLab("bin",dir,im,2); if err!=nil {t.Fatal(err)}
 defer l.Close()
 script,_:=os.ReadFile(os.Getenv("ZZ"))
 for line:=range strings.Lines(string(script)) {
  line=strings.TrimSpace(line); if line=="" {continue}
  if h,ok:=strings.CutPrefix(line,"HOST "); ok { c:=exec.Command("sh","-c",h); c.Env=append(os.Environ(),"R="+l.host.RunDir); o,err:=c.CombinedOutput(); fmt.Println("$$",h,err); fmt.Println(string(o)); continue }
  o,err:=l.vm.Shell(line,30*time.Second); fmt.Println("$",line,err); fmt.Println(o)
 }
}
