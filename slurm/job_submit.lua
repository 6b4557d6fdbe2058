-- Jobledger's part of job_submit/lua: who asks for the constraint hwperf, and with it for the node's hardware counters
-- (docs/profilers.md), has to ask for whole nodes. A profiler counts what a CPU does, whoever's it is.
--
-- As it is, this file is an /etc/slurm/job_submit.lua (JobSubmitPlugins=lua in slurm.conf). A site that has one copies this
-- one to /etc/slurm/jobledger_hwperf.lua, and in its own, above its functions, puts
--     dofile("/etc/slurm/jobledger_hwperf.lua")
-- and at the beginning of these functions
--     local refused = jobledger_hwperf.submit(job_desc)            -- in slurm_job_modify: .modify(job_desc, job_rec)
--     if refused ~= slurm.SUCCESS then return refused end
-- Fields after src/plugins/job_submit/lua and src/lua of SLURM, 20.11 to 26.05. What a version does not have is nil.

jobledger_hwperf = { feature = "hwperf" }

local INVALID_FEATURE = slurm.ESLURM_INVALID_FEATURE or 2029
local NO_VAL16 = slurm.NO_VAL16 or 65534
-- JOB_SHARED_NONE: --exclusive. Others are --exclusive=user, =mcs, =topo and --oversubscribe.
local EXCLUSIVE = 0

local function refuse(why)
    if slurm.log_user then slurm.log_user("%s", why) end
    return INVALID_FEATURE
end

-- Whether the feature is a word of an expression such as hwperf, hwperf&big, [a|hwperf], (hwperf|a)&b or hwperf*2.
local function asks(expression)
    if type(expression) ~= "string" then return false end
    for word in expression:gmatch("[^%s&|,*%[%]%(%):\"']+") do
        if word == jobledger_hwperf.feature then return true end
    end
    return false
end

local function preferred(job_desc)
    if not asks(job_desc.prefer) then return nil end
    return refuse("'" .. jobledger_hwperf.feature .. "' is asked for by --constraint and --exclusive, not by --prefer.")
end

-- Of a job that is submitted; of a heterogeneous one, of each component.
function jobledger_hwperf.submit(job_desc)
    local refused = preferred(job_desc)
    if refused then return refused end
    if not asks(job_desc.features) or job_desc.shared == EXCLUSIVE then return slurm.SUCCESS end
    return refuse("The constraint '" .. jobledger_hwperf.feature
        .. "' hands the node's hardware counters over to the job: ask for whole nodes with --exclusive.")
end

-- Of a job that is changed. SLURM does not show here whether a job has whole nodes, and OverSubscribe=no in a change does
-- not give it whole nodes: so the constraint comes with the submission or not at all.
function jobledger_hwperf.modify(job_desc, job_rec)
    local refused = preferred(job_desc)
    if refused then return refused end
    local had = job_rec ~= nil and asks(job_rec.features)
    local has = asks(job_desc.features)
    if has and not had then
        return refuse("The constraint '" .. jobledger_hwperf.feature
            .. "' cannot be given to a job afterwards: submit it anew, with --exclusive.")
    end
    local keeps = has or (had and job_desc.features == nil)
    local shared = job_desc.shared
    if keeps and shared ~= nil and shared ~= NO_VAL16 and shared ~= EXCLUSIVE then
        return refuse("A job with the constraint '" .. jobledger_hwperf.feature .. "' has to keep its nodes for itself.")
    end
    return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    return jobledger_hwperf.submit(job_desc)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    return jobledger_hwperf.modify(job_desc, job_rec)
end

return slurm.SUCCESS
