package server

import (
	"golang.org/x/sys/unix"

	"roced.io/roced/internal/base/abi/uverbs"
)

// command is the handler of a command and the minimum size of the client's response buffer, in bytes.
type command struct {
	run func(*client, *request) error
	out int
}

var commands = [256]command{
	uverbs.CmdGetContext:        {(*client).getContext, uverbs.Size[uverbs.GetContextResp]()},
	uverbs.CmdQueryDevice:       {(*client).queryDevice, uverbs.Size[uverbs.QueryDeviceResp]()},
	uverbs.CmdQueryPort:         {(*client).queryPort, uverbs.Size[uverbs.QueryPortResp]()},
	uverbs.CmdAllocPD:           {(*client).allocPD, uverbs.Size[uverbs.AllocPDResp]()},
	uverbs.CmdDeallocPD:         {(*client).deallocPD, 0},
	uverbs.CmdCreateAH:          {(*client).createAH, uverbs.Size[uverbs.CreateAHResp]()},
	uverbs.CmdDestroyAH:         {(*client).destroyAH, 0},
	uverbs.CmdAttachMcast:       {(*client).attachMcast, 0},
	uverbs.CmdDetachMcast:       {(*client).detachMcast, 0},
	uverbs.CmdRegMR:             {(*client).regMR, uverbs.Size[uverbs.RegMRResp]()},
	uverbs.CmdReregMR:           {(*client).reregMR, uverbs.Size[uverbs.ReregMRResp]()},
	uverbs.CmdDeregMR:           {(*client).deregMR, 0},
	uverbs.CmdAllocMW:           {(*client).allocMW, uverbs.Size[uverbs.AllocMWResp]()},
	uverbs.CmdDeallocMW:         {(*client).deallocMW, 0},
	uverbs.CmdCreateCompChannel: {(*client).createCompChannel, uverbs.Size[uverbs.CreateCompChannelResp]()},
	uverbs.CmdCreateCQ:          {(*client).createCQ, uverbs.Size[uverbs.CreateCQResp]()},
	uverbs.CmdResizeCQ:          {(*client).resizeCQ, uverbs.Size[uverbs.ResizeCQResp]()},
	uverbs.CmdDestroyCQ:         {(*client).destroyCQ, uverbs.Size[uverbs.DestroyCQResp]()},
	uverbs.CmdReqNotifyCQ:       {(*client).reqNotifyCQ, 0},
	uverbs.CmdCreateQP:          {(*client).createQP, uverbs.Size[uverbs.CreateQPResp]()},
	uverbs.CmdQueryQP:           {(*client).queryQP, uverbs.Size[uverbs.QueryQPResp]()},
	uverbs.CmdModifyQP:          {(*client).modifyQP, 0},
	uverbs.CmdDestroyQP:         {(*client).destroyQP, uverbs.Size[uverbs.DestroyQPResp]()},
	uverbs.CmdPostSend:          {(*client).postSend, uverbs.Size[uverbs.PostSendResp]()},
	uverbs.CmdPostRecv:          {(*client).postRecv, uverbs.Size[uverbs.PostSendResp]()},
	uverbs.CmdPostSRQRecv:       {(*client).postSRQRecv, uverbs.Size[uverbs.PostSendResp]()},
	uverbs.CmdCreateXSRQ:        {(*client).createXSRQ, uverbs.Size[uverbs.CreateSRQResp]()},
	uverbs.CmdCreateSRQ:         {(*client).createSRQ, uverbs.Size[uverbs.CreateSRQResp]()},
	uverbs.CmdModifySRQ:         {(*client).modifySRQ, 0},
	uverbs.CmdQuerySRQ:          {(*client).querySRQ, uverbs.Size[uverbs.QuerySRQResp]()},
	uverbs.CmdDestroySRQ:        {(*client).destroySRQ, uverbs.Size[uverbs.DestroySRQResp]()},
	uverbs.ExtHello:             {(*client).hello, uverbs.Size[uverbs.HelloResp]()},
	uverbs.ExtDoorbell:          {(*client).doorbell, uverbs.Size[uverbs.DoorbellResp]()},
	uverbs.ExtMapMemory:         {(*client).mapMemory, uverbs.Size[uverbs.MapMemoryResp]()},
	uverbs.ExtUnmapMemory:       {(*client).unmapMemory, 0},
	uverbs.ExtPassMemory:        {(*client).passMemory, uverbs.Size[uverbs.PassMemoryResp]()},
	uverbs.ExtModifyQPs:         {(*client).modifyQPs, 0},
	uverbs.ExtSetProfile:        {(*client).setProfile, 0},
	uverbs.ExtQueryGID:          {(*client).queryGID, uverbs.Size[uverbs.QueryGIDResp]()},
	uverbs.ExtRefreshSysfs:      {(*client).refreshSysfs, 0},
	uverbs.ExtReport:            {(*client).requestReport, 0},
	uverbs.ExtModifyMRC:         {(*client).modifyMRC, 0},
	uverbs.ExtQueryMRC:          {(*client).queryMRC, uverbs.Size[uverbs.MRCAttr]()},
	uverbs.ExtMRCDevice:         {(*client).mrcDevice, uverbs.Size[uverbs.MRCDeviceResp]()},
	uverbs.ExtQueryStats:        {(*client).queryStats, uverbs.Size[uverbs.QueryStatsResp]()},
}

var exCommands = [256]command{
	uverbs.CmdQueryDevice: {(*client).exQueryDevice, 0},
	uverbs.CmdCreateCQ:    {(*client).exCreateCQ, uverbs.Size[uverbs.ExCreateCQResp]()},
	uverbs.CmdCreateQP:    {(*client).exCreateQP, uverbs.Size[uverbs.ExCreateQPResp]()},
	uverbs.CmdModifyQP:    {(*client).exModifyQP, 0},
}

// direct marks the commands that may run on the shard. Programs use them during traffic, and they never block.
var direct = [256]bool{
	uverbs.CmdRegMR: true, uverbs.CmdDeregMR: true, uverbs.ExtMapMemory: true, uverbs.ExtUnmapMemory: true,
	uverbs.CmdAllocMW: true, uverbs.CmdDeallocMW: true, uverbs.CmdCreateAH: true, uverbs.CmdDestroyAH: true,
}

func (c *client) execute(q *request) error {
	t := &commands
	if q.Extended {
		t = &exCommands
	}
	cmd := &t[q.Command]
	if cmd.run == nil {
		return unix.EOPNOTSUPP
	}
	if c.async == nil && q.Command != uverbs.CmdGetContext && (q.Command < uverbs.ExtHello || q.Extended) {
		return unix.EINVAL // there is no context yet
	}
	if q.Out < cmd.out {
		return unix.ENOSPC
	}
	return cmd.run(c, q)
}
